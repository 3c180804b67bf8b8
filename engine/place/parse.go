package place

import (
	"fmt"
	"strings"

	"github.com/llmprof/llmprof/engine"
)

// forms are the specs that Parse reads.
const forms = "local, docker:NAME, podman:NAME, kubectl:POD, kubectl:NAMESPACE/POD, kubectl:NAMESPACE/POD/CONTAINER, " +
	"kubectl:CONTEXT/NAMESPACE/POD/CONTAINER (CONTAINER may be empty there), ssh:[USER@]HOST[:PORT]"

// SpecError says that a text names no place.
type SpecError struct {
	// Spec is the text, Why what is wrong with it.
	Spec, Why string
}

// Error names the text.
func (e *SpecError) Error() string { return fmt.Sprintf("place %q: %s", e.Spec, e.Why) }

// Hint lists the forms.
func (e *SpecError) Hint() string { return "a place is one of: " + forms }

// ExitCode is that of wrong use.
func (e *SpecError) ExitCode() int { return 2 }

// Parse reads a place:
//
//	local                                    this machine; so is an empty text
//	docker:NAME                              a running container, by name or id
//	podman:NAME
//	kubectl:POD                              a pod of the current context and namespace
//	kubectl:NAMESPACE/POD
//	kubectl:NAMESPACE/POD/CONTAINER
//	kubectl:CONTEXT/NAMESPACE/POD/CONTAINER  the container may be empty, its slash may not be left out
//	ssh:[USER@]HOST[:PORT]                   an IPv6 address with a port in brackets
//
// A context may hold slashes and colons itself: the last three parts are
// namespace, pod and container. Nothing is started or looked up. Env is the
// environment as for [Local].
func Parse(spec string, env ...string) (engine.Place, error) {
	kind, rest, _ := strings.Cut(spec, ":")
	wrong := func(why string) (engine.Place, error) { return nil, &SpecError{Spec: spec, Why: why} }
	if strings.ContainsFunc(spec, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return wrong("it holds a control character")
	}
	switch kind {
	case "", "local":
		if spec != kind {
			return wrong("local takes no name")
		}
		return Local(env...), nil
	case "docker", "podman", "kubectl", "ssh":
	default:
		return wrong("no such kind of place")
	}
	switch {
	case rest == "":
		return wrong("no name after " + kind + ":")
	case strings.HasPrefix(rest, "-"):
		return wrong("a name that begins with a dash would be taken for an option")
	case strings.Contains(rest, " "):
		return wrong("it holds a space")
	}
	switch kind {
	case "docker", "podman":
		if strings.Contains(rest, "/") {
			return wrong("a container's name holds no slash; that looks like an image")
		}
		return containerPlace(kind, rest, env), nil
	case "kubectl":
		pod, why := parsePod(rest)
		if why != "" {
			return wrong(why)
		}
		return Kubectl(pod, env...), nil
	}
	rest = strings.TrimSuffix(strings.TrimPrefix(rest, "//"), "/")
	if why := checkTarget(rest); why != "" {
		return wrong(why)
	}
	return SSH(rest, env...), nil
}

// parsePod takes the name of a pod apart.
func parsePod(text string) (pod Pod, why string) {
	parts := strings.Split(text, "/")
	switch n := len(parts); n {
	case 1:
		pod = Pod{Name: parts[0]}
	case 2:
		pod = Pod{Namespace: parts[0], Name: parts[1]}
	case 3:
		pod = Pod{Namespace: parts[0], Name: parts[1], Container: parts[2]}
	default:
		pod = Pod{Context: strings.Join(parts[:n-3], "/"), Namespace: parts[n-3], Name: parts[n-2], Container: parts[n-1]}
	}
	for i, part := range parts {
		last := i == len(parts)-1
		if part == "" && (!last || len(parts) < 4) || strings.HasPrefix(part, "-") {
			return Pod{}, "a part of the pod's name is empty or begins with a dash"
		}
	}
	return pod, ""
}

// checkTarget refuses what ssh would misunderstand.
func checkTarget(target string) (why string) {
	host, port := splitPort(target)
	name := hostOf(host)
	switch {
	case name == "" || strings.HasPrefix(host, "@") || strings.HasPrefix(name, "-") || strings.HasPrefix(host, "-"):
		return "no host is named"
	case strings.ContainsAny(host, "/'\"\\"):
		return "it holds a character that no host has"
	case strings.Trim(port, "0123456789") != "" || len(port) > 5 || strings.HasSuffix(target, ":") && !strings.HasSuffix(target, "::"):
		return "the port is no number"
	}
	return ""
}
