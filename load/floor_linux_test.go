package load

import (
	"bytes"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/llmprof/llmprof/workload"
)

// BenchmarkFloor32 and the next are what the system alone takes for the load of
// BenchmarkClient32 and BenchmarkClient256: the time of one thread that waits
// for an epoll set and reads, past Go's scheduler, and does nothing with what
// it has read.
func BenchmarkFloor32(b *testing.B) { benchmarkFloor(b, 32) }

// BenchmarkFloor256 has eight times as many streams.
func BenchmarkFloor256(b *testing.B) { benchmarkFloor(b, 256) }

func benchmarkFloor(b *testing.B, streams int) {
	const rounds, output = 3, 128
	address := serveApart(b, 50*time.Millisecond, 20*time.Millisecond)
	to, err := Target{URL: address, Model: "m", Engine: VLLM}.prepare()
	if err != nil {
		b.Fatal(err)
	}
	request, _, err := to.appendRequest(nil, nil, workload.Request{InputLen: 32, OutputLen: output}, "")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		tokens := float64(rounds * streams * output)
		used, waits, reads := floorLoop(b, address, request, streams, rounds*streams)
		b.ReportMetric(float64(used)/float64(time.Microsecond)/tokens, "µs/token")
		b.ReportMetric(float64(waits)/tokens, "waits/token")
		b.ReportMetric(float64(reads)/tokens, "reads/token")
	}
}

// floorLoop sends a request total times over so many connections, and tells
// the processor time that its thread used.
func floorLoop(b *testing.B, address string, request []byte, streams, total int) (used time.Duration, waits, reads int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Close(set)
	before := threadTime(b)
	for range streams {
		fd := floorConnect(b, address)
		defer unix.Close(fd)
		if err := unix.EpollCtl(set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: arrivals, Fd: int32(fd)}); err != nil {
			b.Fatal(err)
		}
		if _, err := transfer(unix.SYS_SENDTO, fd, request); err != nil {
			b.Fatal(err)
		}
	}
	events, buffer := make([]unix.EpollEvent, 256), make([]byte, readBuffer)
	for left, open := total-streams, streams; open > 0; waits++ {
		n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(set), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), ^uintptr(0), 0, 0)
		if errno != 0 {
			continue // the runtime's signals
		}
		for _, event := range events[:n] {
			count, err := transfer(unix.SYS_RECVFROM, int(event.Fd), buffer)
			if err != nil || count == 0 {
				b.Fatalf("received %d: %v", count, err)
			}
			reads++
			if !bytes.HasSuffix(buffer[:count], []byte(lastFrame)) {
				continue
			}
			if open--; left > 0 {
				left, open = left-1, open+1
				_, _ = transfer(unix.SYS_SENDTO, int(event.Fd), request)
			}
		}
	}
	return threadTime(b) - before, waits, reads
}

// threadTime is the processor time of the calling thread.
func threadTime(b *testing.B) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// floorConnect opens a connection to a server on this machine.
func floorConnect(b *testing.B, address string) int {
	to, err := netip.ParseAddrPort(strings.TrimPrefix(address, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}); err != nil {
		b.Fatal(err)
	}
	return fd
}
