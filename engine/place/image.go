package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/llmprof/llmprof/engine"
)

// Image says how to run a container for the time of a measurement.
type Image struct {
	// Name is the image, "vllm/vllm-openai:v0.11.0". It has to be there: nothing
	// is pulled.
	Name string
	// Program is docker or podman; empty for docker.
	Program string
	// GPUs are the NVIDIA devices that the container sees, by number or UUID;
	// "all" for all of them, none for none.
	GPUs []string
	// Mounts are folders of the host, "HOST:CONTAINER" or "HOST:CONTAINER:ro".
	Mounts []string
	// Env are variables of the container, "NAME=value". They can be read by
	// whoever may inspect it: give secrets to the engine's command instead.
	Env []string
	// Network is "host", "none" or a network of the service; empty for its
	// default.
	Network string
	// SharedMemoryBytes is the size of /dev/shm; 0 shares the host's, as
	// engines on several devices need.
	SharedMemoryBytes int64
}

// Container is a container that [RunImage] has started.
type Container struct {
	*Remote
	door *dockerDoor
	id   string
	hold client.HijackedResponse
}

// imageProgram keeps the container alive for as long as its stdin is open.
const imageProgram = "cat >/dev/null"

// RunImage starts a container and returns it as a place; Close removes it. The
// container's only program of its own waits for the end of its stdin, which
// this program holds open: when this program dies, the container ends, and the
// service removes it. Env is as for [Docker].
func RunImage(ctx context.Context, image Image, env ...string) (*Container, error) {
	program := image.Program
	if program == "" {
		program = "docker"
	}
	at := containerPlace(program, image.Name, env)
	at.redactor = at.redactor.With(image.Env...)
	d, ok := at.door.(*dockerDoor)
	if !ok || image.Name == "" {
		return nil, errors.New("run an image: none is named")
	}
	c, err := d.dial(ctx)
	if err != nil {
		return nil, err
	}
	made, err := c.ContainerCreate(ctx, client.ContainerCreateOptions{Config: image.config(), HostConfig: image.hostConfig()})
	switch {
	case errdefs.IsNotFound(err) || err != nil && strings.Contains(strings.ToLower(err.Error()), "no such image"):
		return nil, &engine.UnusableError{
			Problem: engine.PlaceMissing, What: program + " image " + image.Name,
			Remedy: program + " pull " + image.Name, Err: err,
		}
	case err != nil:
		return nil, d.translate(ctx, err)
	}
	run := &Container{Remote: at, door: d, id: made.ID}
	d.container = made.ID
	attached, err := c.ContainerAttach(ctx, made.ID, client.ContainerAttachOptions{Stream: true, Stdin: true})
	if err != nil {
		return nil, errors.Join(d.translate(ctx, err), run.remove())
	}
	run.hold = attached.HijackedResponse
	if _, err := c.ContainerStart(ctx, made.ID, client.ContainerStartOptions{}); err != nil {
		return nil, errors.Join(startImageError(d, image, err), run.Close())
	}
	return run, nil
}

// config is what the container runs.
func (i Image) config() *container.Config {
	return &container.Config{
		Image: i.Name, Env: i.Env, Entrypoint: []string{"sh", "-c", imageProgram}, Cmd: []string{},
		OpenStdin: true, StdinOnce: true, AttachStdin: true,
		Labels: map[string]string{"llmprof": "measurement"},
	}
}

// hostConfig is what the container gets of the host.
func (i Image) hostConfig() *container.HostConfig {
	on := true
	host := &container.HostConfig{Binds: i.Mounts, AutoRemove: true, Init: &on, ShmSize: i.SharedMemoryBytes}
	host.NetworkMode = container.NetworkMode(i.Network)
	if i.SharedMemoryBytes == 0 {
		host.IpcMode = "host"
	}
	if len(i.GPUs) == 0 {
		return host
	}
	request := container.DeviceRequest{Driver: "nvidia", Capabilities: [][]string{{"gpu"}}}
	if len(i.GPUs) == 1 && i.GPUs[0] == "all" {
		request.Count = -1
	} else {
		request.DeviceIDs = i.GPUs
	}
	host.DeviceRequests = []container.DeviceRequest{request}
	return host
}

// startImageError says why a container could not be started.
func startImageError(d *dockerDoor, image Image, err error) error {
	text := strings.ToLower(err.Error())
	if strings.Contains(text, "could not select device driver") || strings.Contains(text, "nvidia-container-cli") {
		return &engine.UnusableError{
			Problem: engine.ServiceUnreachable, What: d.program + " image " + image.Name,
			Remedy: "install the NVIDIA container toolkit: sudo nvidia-ctk runtime configure --runtime=" + d.program + ", then restart the service",
			Err:    err,
		}
	}
	if strings.Contains(text, "executable file not found") {
		return d.noShell(err)
	}
	return fmt.Errorf("start %s image %s: %w", d.program, image.Name, err)
}

// Close ends and removes the container with all that runs in it.
func (c *Container) Close() error {
	_ = c.hold.CloseWrite()
	c.hold.Close()
	return c.remove()
}

// remove deletes the container. That it is gone already, by its own end, is no
// failure.
func (c *Container) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), removePatience)
	defer cancel()
	api, err := c.door.dial(ctx)
	if err != nil {
		return err
	}
	_, err = api.ContainerRemove(ctx, c.id, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if err == nil || errdefs.IsNotFound(err) || strings.Contains(err.Error(), "already in progress") {
		return nil
	}
	return fmt.Errorf("remove %s container %s: %w", c.door.program, c.id, err)
}

var (
	_ io.Closer    = (*Container)(nil)
	_ engine.Place = (*Container)(nil)
	_ engine.Place = (*Remote)(nil)
	_ engine.Place = (*LocalPlace)(nil)
)
