package place_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/engine/place"
)

func TestParse(t *testing.T) {
	for spec, want := range map[string]string{
		"":                               "local",
		"local":                          "local",
		"docker:vllm":                    "docker:vllm",
		"podman:3f2a":                    "podman:3f2a",
		"kubectl:vllm-0":                 "kubectl:vllm-0",
		"kubectl:serving/vllm-0":         "kubectl:serving/vllm-0",
		"kubectl:serving/vllm-0/engine":  "kubectl:serving/vllm-0/engine",
		"kubectl:prod/serving/vllm-0/":   "kubectl:prod/serving/vllm-0/",
		"kubectl:arn:aws:eks:x/y/ns/p/c": "kubectl:arn:aws:eks:x/y/ns/p/c",
		"ssh:gpu7":                       "ssh:gpu7",
		"ssh:me@gpu7:2222":               "ssh:me@gpu7:2222",
		"ssh://me@gpu7:2222/":            "ssh:me@gpu7:2222",
		"ssh:[::1]:22":                   "ssh:[::1]:22",
		"ssh:fe80::1":                    "ssh:fe80::1",
	} {
		at, err := place.Parse(spec)
		if err != nil {
			t.Errorf("%q: %v", spec, err)
			continue
		}
		if at.String() != want {
			t.Errorf("%q is %q, want %q", spec, at, want)
		}
		if again, err := place.Parse(at.String()); err != nil || again.String() != want {
			t.Errorf("%q read again: %v, %v", want, again, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ why, spec string }{
		{"no such kind", "lxc:box"},
		{"local takes no name", "local:x"},
		{"no name", "docker:"},
		{"an image, not a container", "docker:vllm/vllm-openai"},
		{"an option in disguise", "ssh:-oProxyCommand=id"},
		{"an option behind a user", "ssh:me@-oProxyCommand=id"},
		{"an option in disguise of a pod", "kubectl:ns/--help"},
		{"no pod", "kubectl:ns/"},
		{"no namespace", "kubectl:/pod"},
		{"no namespace in a context", "kubectl:ctx//pod/"},
		{"a port that is none", "ssh:gpu7:http"},
		{"no port after the colon", "ssh:gpu7:"},
		{"no host", "ssh:me@"},
		{"no user", "ssh:@gpu7"},
		{"a space", "ssh:gpu7 id"},
		{"a line break", "docker:a\nb"},
		{"a quote", "ssh:'gpu7'"},
	} {
		at, err := place.Parse(test.spec)
		var wrong *place.SpecError
		if !errors.As(err, &wrong) || at != nil {
			t.Errorf("%s: %q gives %v, %v", test.why, test.spec, at, err)
			continue
		}
		if !strings.Contains(wrong.Hint(), "kubectl:NAMESPACE/POD") || wrong.ExitCode() != 2 {
			t.Errorf("%s: hint %q, exit code %d", test.why, wrong.Hint(), wrong.ExitCode())
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"local", "docker:a", "kubectl:a/b/c/d", "ssh:u@[::1]:22", "ssh:a:", "kubectl:///"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		at, err := place.Parse(spec, "HOME=/")
		if err != nil {
			return
		}
		again, err := place.Parse(at.String(), "HOME=/")
		if err != nil || again.String() != at.String() {
			t.Errorf("%q is %q, which is %v, %v", spec, at, again, err)
		}
	})
}

func ExampleParse() {
	for _, spec := range []string{"docker:vllm", "kubectl:serving/vllm-0", "lxc:box"} {
		at, err := place.Parse(spec)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(at)
	}
	// Output:
	// docker:vllm
	// kubectl:serving/vllm-0
	// place "lxc:box": no such kind of place
}
