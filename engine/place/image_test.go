//go:build unix

package place_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
)

func TestRunImage(t *testing.T) {
	daemon := newFakeDaemon(t)
	run, err := place.RunImage(t.Context(), place.Image{
		Name: "vllm/vllm-openai:v1", GPUs: []string{"0", "2"}, Mounts: []string{"/models:/models:ro"}, Env: []string{"A=b"},
	}, daemon.env()...)
	if err != nil {
		t.Fatal(err)
	}
	if got := run.String(); got != "docker:vllm/vllm-openai:v1" {
		t.Errorf("name %q", got)
	}
	if got := output(t, run, sh("echo inside")); got != "inside\n" {
		t.Errorf("ran %q", got)
	}
	var asked struct {
		Image      string
		Entrypoint []string
		OpenStdin  bool
		StdinOnce  bool
		Env        []string
		HostConfig struct {
			Binds          []string
			AutoRemove     bool
			IpcMode        string
			DeviceRequests []struct{ DeviceIDs []string }
		}
	}
	if err := json.Unmarshal(daemon.made[0], &asked); err != nil {
		t.Fatal(err)
	}
	if asked.Image != "vllm/vllm-openai:v1" || !asked.OpenStdin || !asked.StdinOnce || !asked.HostConfig.AutoRemove || asked.HostConfig.IpcMode != "host" {
		t.Errorf("asked for %+v", asked)
	}
	if diff := cmp.Diff([]struct{ DeviceIDs []string }{{[]string{"0", "2"}}}, asked.HostConfig.DeviceRequests); diff != "" {
		t.Error(diff)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case what := <-daemon.gone:
			if what != "made" && what != "stdin of made" {
				t.Errorf("%s has gone", what)
			}
		case <-time.After(forGood):
			t.Fatal("the container was not removed, or its stdin not closed")
		}
	}
}

func TestRunImageMissing(t *testing.T) {
	_, err := place.RunImage(t.Context(), place.Image{Name: "no-such"}, newFakeDaemon(t).env()...)
	var known *engine.UnusableError
	if !errors.As(err, &known) || known.Problem != engine.PlaceMissing || known.Remedy != "docker pull no-such" {
		t.Errorf("got %v", err)
	}
	if _, err := place.RunImage(t.Context(), place.Image{}); err == nil {
		t.Error("ran no image")
	}
}

// TestRunRealImage runs a real image: PLACE_IMAGE="podman:localhost/test".
func TestRunRealImage(t *testing.T) {
	program, image, found := strings.Cut(os.Getenv("PLACE_IMAGE"), ":")
	if !found {
		t.Skip("set PLACE_IMAGE to an image that is there, as in PLACE_IMAGE=docker:busybox")
	}
	run, err := place.RunImage(t.Context(), place.Image{Name: image, Program: program, Network: "host"})
	if err != nil {
		t.Fatal(err)
	}
	if got := output(t, run, sh("echo inside")); got != "inside\n" {
		t.Errorf("ran %q", got)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if err := run.Available(t.Context()); engine.Unusable(err) != engine.PlaceMissing {
		t.Errorf("after its removal: %v", err)
	}
}
