//go:build unix

package place_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
)

func TestSSHUnusable(t *testing.T) {
	for _, test := range []struct {
		why, says string
		want      engine.Problem
		hint      string
	}{
		{"no such name", "ssh: Could not resolve hostname gpu7: Name or service not known", engine.PlaceMissing, "~/.ssh/config"},
		{"no sshd", "ssh: connect to host gpu7 port 2222: Connection refused", engine.ServiceUnreachable, "start sshd"},
		{"no answer", "ssh: connect to host gpu7 port 2222: Connection timed out", engine.ServiceUnreachable, "firewall"},
		{"no route", "ssh: connect to host gpu7 port 2222: No route to host", engine.ServiceUnreachable, "VPN"},
		{"it hangs up", "Connection closed by 10.0.0.7 port 2222", engine.ServiceUnreachable, "-v"},
		{"no key", "me@gpu7: Permission denied (publickey,password).", engine.PermissionDenied, "ssh-copy-id me@gpu7"},
		{"too many keys", "Received disconnect from 10.0.0.7 port 22:2: Too many authentication failures", engine.PermissionDenied, "IdentitiesOnly"},
		{"host seen for the first time", "Host key verification failed.", engine.PermissionDenied, "ssh -p 2222 me@gpu7"},
		{"host with another key", "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.", engine.PermissionDenied, "ssh-keygen -R gpu7"},
		{"an account without a shell", "This account is currently not available.", engine.PermissionDenied, "chsh"},
		{"no sh", "ash: exec: line 1: sh: not found", engine.ProgramMissing, "POSIX shell"},
	} {
		t.Run(test.why, func(t *testing.T) {
			at := place.SSH("me@gpu7:2222", append(fakes(t), "FAKE_FAILURE="+test.says)...)
			unusable(t, at, test.want, strings.Split(test.says, "\n")[0], test.hint)
		})
	}
	t.Run("what is not known is told as it is", func(t *testing.T) {
		unusable(t, place.SSH("gpu7", append(fakes(t), "FAKE_FAILURE=the moon is full")...), "", "the moon is full", "")
	})
	t.Run("no ssh here", func(t *testing.T) {
		unusable(t, place.SSH("gpu7", "PATH="+t.TempDir()), engine.ProgramMissing, "program ssh on this machine", "install ssh")
	})
}

func TestKubectlUnusable(t *testing.T) {
	pod := place.Pod{Namespace: "serving", Name: "vllm-0", Container: "engine"}
	for _, test := range []struct {
		why, says string
		want      engine.Problem
		hint      string
	}{
		{"no such pod", `Error from server (NotFound): pods "vllm-0" not found`, engine.PlaceMissing, "kubectl --namespace=serving get pods"},
		{"no such namespace", `Error from server (NotFound): namespaces "serving" not found`, engine.PlaceMissing, "get namespaces"},
		{"no such container", `Error from server (BadRequest): container engine is not valid for pod vllm-0`, engine.PlaceMissing, "containers[*].name"},
		{"no such container, as newer ones say", `error: container engine not found in pod vllm-0_serving`, engine.PlaceMissing, "containers[*].name"},
		{"no such context", `error: context "" does not exist`, engine.PlaceMissing, "get-contexts"},
		{"the container does not run", `error: unable to upgrade connection: container not found ("engine")`, engine.PlaceStopped, "logs --previous vllm-0"},
		{"it crashes again and again", `container "engine" in pod "vllm-0" is waiting to start: CrashLoopBackOff`, engine.PlaceStopped, "logs --previous"},
		{"the pod has ended", `error: cannot exec into a container in a completed pod; current phase is Succeeded`, engine.PlaceStopped, "create it"},
		{"the pod waits for a node", `Error from server (BadRequest): pod vllm-0 does not have a host assigned`, engine.PlaceStopped, "describe pod vllm-0"},
		{"it is pending", `error: pod is not running: current phase is Pending`, engine.PlaceStopped, "waits"},
		{"forbidden", `Error from server (Forbidden): pods "vllm-0" is forbidden: User "me" cannot create resource "pods/exec"`, engine.PermissionDenied, "auth can-i create pods/exec"},
		{"logged out", `error: You must be logged in to the server (Unauthorized)`, engine.PermissionDenied, "log in"},
		{"no cluster", "E1121 20:07:48.756681   32415 memcache.go:265] noise\nThe connection to the server localhost:8080 was refused - did you specify the right host or port?", engine.ServiceUnreachable, "KUBECONFIG"},
		{"no such server", `Unable to connect to the server: dial tcp: lookup k8s on 10.0.0.1:53: no such host`, engine.ServiceUnreachable, "cluster-info"},
		{"no node", `Error from server: error dialing backend: dial tcp 10.0.0.2:10250: i/o`, engine.ServiceUnreachable, "kubectl get nodes"},
		{"no sh", `OCI runtime exec failed: exec failed: unable to start container process: exec: "sh": executable file not found in $PATH: unknown`, engine.ProgramMissing, "no sh"},
	} {
		t.Run(test.why, func(t *testing.T) {
			said := strings.Split(test.says, "\n")
			unusable(t, place.Kubectl(pod, append(fakes(t), "FAKE_FAILURE="+test.says)...), test.want, said[len(said)-1], test.hint)
		})
	}
	t.Run("no kubectl here", func(t *testing.T) {
		unusable(t, place.Kubectl(pod, "PATH="+t.TempDir()), engine.ProgramMissing, "program kubectl", "install kubectl")
	})
}

// The script that a login shell reads must mean the same to every one.
func TestSSHLoginShells(t *testing.T) {
	for _, shell := range []string{"sh", "bash", "dash", "zsh", "fish", "csh", "tcsh", "ksh"} {
		t.Run(shell, func(t *testing.T) {
			if _, err := exec.LookPath(shell); err != nil {
				t.Skip("not installed here")
			}
			at := place.SSH("gpu7", append(fakes(t), "FAKE_LOGIN_SHELL="+shell)...)
			if got := output(t, at, sh(`printf '%s|' "$@"`, "it's", `"$HOME"`, "a!b\n")); got != "it's|\"$HOME\"|a!b\n|" {
				t.Errorf("arrived %q", got)
			}
		})
	}
}

// A secret of the environment that the client runs in is hidden, too.
func TestRemoteErrorsAreRedacted(t *testing.T) {
	at := place.SSH("gpu7", append(fakes(t), "FAKE_FAILURE=bad password swordfish, sk-0123456789abcdefghij", "MY_PASSWORD=swordfish")...)
	err := at.Available(t.Context())
	if err == nil || strings.Contains(err.Error(), "swordfish") || strings.Contains(err.Error(), "sk-0123") {
		t.Errorf("got %v", err)
	}
	if os.Getenv("MY_PASSWORD") != "" {
		t.Error("the test's variable has reached this program")
	}
}
