import os, socket, sys, threading

# Connects stdin and stdout with a port of the loopback address. The mark says
# on stdout that the connection is open; stdin's end closes it.
mark, port = sys.argv[1], int(sys.argv[2])
sock, why = None, ""
for host in ("127.0.0.1", "::1"):
    try:
        sock = socket.create_connection((host, port), 10)
        break
    except OSError as error:
        why = why or str(error)
if sock is None:
    os.write(1, (mark + " refused " + why + "\n").encode())
    sys.exit(1)
sock.settimeout(None)
sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
os.write(1, (mark + " open\n").encode())


def send():
    try:
        while True:
            data = os.read(0, 65536)
            if not data:
                break
            sock.sendall(data)
    finally:
        os._exit(0)


threading.Thread(target=send, daemon=True).start()
while True:
    data = sock.recv(65536)
    if not data:
        break
    while data:
        data = data[os.write(1, data):]
os._exit(0)
