package place

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/llmprof/llmprof/engine"
)

// sshDoor opens shells with the ssh client.
type sshDoor struct {
	target string // [user@]host
	port   string // empty for what ssh's configuration says
	env    []string
}

// SSH returns the host that "ssh TARGET" reaches, with the keys, jump hosts and
// aliases of the user's own configuration; target is "[user@]host[:port]". It
// never asks for a password. Env, "NAME=value", is the environment of the ssh
// program and is searched for secrets; none at all stands for this program's.
func SSH(target string, env ...string) *Remote {
	env = ownEnv(env)
	host, port := splitPort(target)
	return &Remote{name: "ssh:" + target, redactor: engine.NewRedactor(env...), door: &sshDoor{target: host, port: port, env: env}}
}

// splitPort takes the port off "host:port"; an IPv6 address with a port stands
// in brackets.
func splitPort(target string) (host, port string) {
	user, address, found := strings.Cut(target, "@")
	if !found {
		user, address = "", target
	} else {
		user += "@"
	}
	if inside, rest, ok := strings.Cut(strings.TrimPrefix(address, "["), "]"); ok && strings.HasPrefix(address, "[") {
		return user + inside, strings.TrimPrefix(rest, ":")
	}
	if strings.Count(address, ":") == 1 {
		address, port, _ = strings.Cut(address, ":")
	}
	return user + address, port
}

// open runs ssh. The script goes through the login shell of the host, whichever
// it is; that is why it holds no single quote.
func (d *sshDoor) open(ctx context.Context, script string, stderr io.WriteCloser, last *tail) (link, error) {
	argv := []string{
		"ssh", "-T", "-a", "-x", "-e", "none",
		"-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "-o", "LogLevel=ERROR",
		"-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4", "-o", "RemoteCommand=none",
	}
	if d.port != "" {
		argv = append(argv, "-p", d.port)
	}
	argv = append(argv, "--", d.target, "exec sh -c '"+script+"'")
	return openClient(ctx, "ssh:"+d.target, argv, d.env, stderr, last)
}

// explain reads the messages of the ssh client.
func (d *sshDoor) explain(status int, text string) error {
	command := "ssh " + d.target
	if d.port != "" {
		command = "ssh -p " + d.port + " " + d.target
	}
	return explainBy([]saying{
		{"identification has changed", engine.PermissionDenied, "find out why the host's key changed; then: ssh-keygen -R " + hostOf(d.target)},
		{"host key verification failed", engine.PermissionDenied, "run once by hand to see and accept the host's key: " + command},
		{"permission denied (", engine.PermissionDenied, "ssh-copy-id " + d.target + ", or ssh-add the key; try with: " + command},
		{"too many authentication failures", engine.PermissionDenied, "name the key in ~/.ssh/config (IdentityFile, IdentitiesOnly yes); try with: " + command},
		{"could not resolve hostname", engine.PlaceMissing, "check the name, or add the host to ~/.ssh/config; try with: " + command},
		{"connection refused", engine.ServiceUnreachable, "start sshd on the host, or give its port: ssh:HOST:PORT"},
		{"timed out", engine.ServiceUnreachable, "check that the host is up and that no firewall is in between; try with: " + command},
		{"no route to host", engine.ServiceUnreachable, "check the network and VPN; try with: " + command},
		{"network is unreachable", engine.ServiceUnreachable, "check the network and VPN; try with: " + command},
		{"connection closed by", engine.ServiceUnreachable, "the host's sshd refused; try with: " + command + " -v"},
		{"connection reset", engine.ServiceUnreachable, "the host's sshd refused; try with: " + command + " -v"},
		{"kex_exchange_identification", engine.ServiceUnreachable, "something else than sshd answers there; try with: " + command + " -v"},
		{"account is currently not available", engine.PermissionDenied, "the account may not log in: give it a shell on the host (sudo chsh -s /bin/sh USER), or use another"},
		{"not found", engine.ProgramMissing, "the host has no sh, which llmprof needs: a POSIX shell"},
	}, "ssh host "+d.target, status, text)
}

// hostOf takes the user off a target.
func hostOf(target string) string {
	if _, host, found := strings.Cut(target, "@"); found {
		return host
	}
	return target
}

// saying is a part of a message, in lower case, and what it means.
type saying struct {
	text    string
	problem engine.Problem
	remedy  string
}

// explainBy finds the first saying in a text.
func explainBy(sayings []saying, what string, status int, text string) error {
	lower := strings.ToLower(text)
	for _, s := range sayings {
		if status != 0 && strings.Contains(lower, s.text) {
			return &engine.UnusableError{Problem: s.problem, What: what, Remedy: s.remedy, Err: errors.New(text)}
		}
	}
	return nil
}
