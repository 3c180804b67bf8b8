package place

import (
	"context"
	"io"
	"regexp"
	"strings"

	"github.com/llmprof/llmprof/engine"
)

// Pod names a container of a Kubernetes pod.
type Pod struct {
	// Context is one of the user's kubectl contexts; empty for the current one.
	Context string
	// Namespace is the pod's; empty for the context's own.
	Namespace string
	// Name is the pod's name; Container is empty for its first or default one.
	Name, Container string
}

// kubectlStatus is what kubectl adds to the stderr of a program that failed.
var kubectlStatus = regexp.MustCompile(`(?m)^command terminated with exit code \d+\s*\z`)

// kubectlLog is a line of kubectl's own log.
var kubectlLog = regexp.MustCompile(`(?m)^[EWI]\d{4} .*\n?`)

// kubectlDoor opens shells with kubectl exec.
type kubectlDoor struct {
	pod Pod
	env []string
}

// Kubectl returns a container of a running pod, reached through the kubectl
// program, so that the user's own configuration and log-in plugins count. Env,
// "NAME=value", is the environment of that program and is searched for secrets;
// none at all stands for this program's.
func Kubectl(pod Pod, env ...string) *Remote {
	env = ownEnv(env)
	return &Remote{name: "kubectl:" + pod.String(), redactor: engine.NewRedactor(env...), door: &kubectlDoor{pod: pod, env: env}}
}

// String writes the pod as [Parse] reads it.
func (p Pod) String() string {
	switch {
	case p.Context != "":
		return strings.Join([]string{p.Context, p.Namespace, p.Name, p.Container}, "/")
	case p.Container != "":
		return strings.Join([]string{p.Namespace, p.Name, p.Container}, "/")
	case p.Namespace != "":
		return p.Namespace + "/" + p.Name
	}
	return p.Name
}

// flags are the options that lead to the pod's namespace.
func (d *kubectlDoor) flags() []string {
	var flags []string
	if d.pod.Context != "" {
		flags = append(flags, "--context="+d.pod.Context)
	}
	if d.pod.Namespace != "" {
		flags = append(flags, "--namespace="+d.pod.Namespace)
	}
	return flags
}

// open runs kubectl exec, which runs the shell without any other in between.
func (d *kubectlDoor) open(ctx context.Context, script string, stderr io.WriteCloser, last *tail) (link, error) {
	argv := append([]string{"kubectl"}, d.flags()...)
	argv = append(argv, "exec", "--stdin", "--quiet")
	if d.pod.Container != "" {
		argv = append(argv, "--container="+d.pod.Container)
	}
	argv = append(argv, d.pod.Name, "--", "sh", "-c", script)
	return openClient(ctx, "kubectl:"+d.pod.String(), argv, d.env, stderr, last)
}

// explain reads the messages of kubectl.
func (d *kubectlDoor) explain(status int, text string) error {
	if short := strings.TrimSpace(kubectlLog.ReplaceAllString(text, "")); short != "" {
		text = short // kubectl logs its own tries before it says what is wrong
	}
	kubectl := strings.Join(append([]string{"kubectl"}, d.flags()...), " ")
	look := kubectl + " describe pod " + d.pod.Name
	unreachable := "kubectl cluster-info shows which cluster is meant; start it, or set KUBECONFIG or the context"
	return explainBy([]saying{
		{"executable file not found", engine.ProgramMissing, "the container has no sh, which llmprof needs: choose another container of the pod, or an image with a shell"},
		{"(forbidden)", engine.PermissionDenied, kubectl + " auth can-i create pods/exec; ask the cluster's owner for that right"},
		{"(unauthorized)", engine.PermissionDenied, "log in to the cluster again, as kubectl does; try: " + kubectl + " get pods"},
		{"must be logged in", engine.PermissionDenied, "log in to the cluster again, as kubectl does; try: " + kubectl + " get pods"},
		{"crashloopbackoff", engine.PlaceStopped, kubectl + " logs --previous " + d.pod.Name + " shows why the container ends"},
		{"unable to upgrade connection: container not found", engine.PlaceStopped, kubectl + " logs --previous " + d.pod.Name + " and " + look + " show why the container does not run"},
		{"completed pod", engine.PlaceStopped, "the pod has ended and cannot start again: delete and create it; see " + look},
		{"does not have a host assigned", engine.PlaceStopped, "the pod waits to be scheduled: " + look + " shows for what"},
		{"pending", engine.PlaceStopped, "the pod waits: " + look + " shows for what"},
		{"not running", engine.PlaceStopped, look + " shows why it does not run"},
		{"containercreating", engine.PlaceStopped, "wait until the container is created: " + look},
		{"context was not found", engine.PlaceMissing, "kubectl config get-contexts lists them"},
		{"context \"" + strings.ToLower(d.pod.Context) + "\" does not exist", engine.PlaceMissing, "kubectl config get-contexts lists them"},
		{"namespaces \"", engine.PlaceMissing, "kubectl get namespaces lists them"},
		{"is not valid for pod", engine.PlaceMissing, kubectl + " get pod " + d.pod.Name + " -o jsonpath='{.spec.containers[*].name}' lists the containers"},
		{"not found in pod", engine.PlaceMissing, kubectl + " get pod " + d.pod.Name + " -o jsonpath='{.spec.containers[*].name}' lists the containers"},
		{"(notfound)", engine.PlaceMissing, kubectl + " get pods lists them (add -A for every namespace)"},
		{"connection refused", engine.ServiceUnreachable, unreachable},
		{"was refused", engine.ServiceUnreachable, unreachable},
		{"unable to connect to the server", engine.ServiceUnreachable, unreachable},
		{"no such host", engine.ServiceUnreachable, unreachable},
		{"timeout", engine.ServiceUnreachable, unreachable},
		{"no configuration has been provided", engine.ServiceUnreachable, unreachable},
		{"error dialing backend", engine.ServiceUnreachable, "the cluster does not reach the pod's node: kubectl get nodes"},
	}, "kubernetes pod "+d.pod.String(), status, text)
}
