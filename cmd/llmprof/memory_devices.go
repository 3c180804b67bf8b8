package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/measure/memory"
)

// The variables by which a process chooses devices.
const (
	cudaVisible = "CUDA_VISIBLE_DEVICES"
	rocrVisible = "ROCR_VISIBLE_DEVICES"
	hipVisible  = "HIP_VISIBLE_DEVICES"
)

func deviceVariables() []string { return []string{cudaVisible, rocrVisible, hipVisible} }

// visibleVariables are those that leave an engine these devices; none for all.
func visibleVariables(devices []string) []string {
	if len(devices) == 0 {
		return nil
	}
	list := strings.Join(devices, ",")
	return []string{cudaVisible + "=" + list, hipVisible + "=" + list}
}

// devicesGiven are the variables that choose an engine's devices, nil where one
// is not set: as they are given for the engine, else as its place has them.
func devicesGiven(ctx context.Context, place engine.Place, given []string) map[string]*string {
	lists := map[string]*string{}
	if place.String() != "local" {
		lists = devicesThere(ctx, place)
	} else {
		for _, name := range deviceVariables() {
			if value, ok := os.LookupEnv(name); ok {
				lists[name] = &value
			}
		}
	}
	for _, pair := range given { // the last one counts
		if name, value, _ := strings.Cut(pair, "="); slices.Contains(deviceVariables(), name) {
			lists[name] = &value
		}
	}
	return lists
}

// devicesThere asks a place for the variables that choose devices. One that
// does not answer, as a container without a shell, is taken to have none.
func devicesThere(ctx context.Context, place engine.Place) map[string]*string {
	const longest = 64 << 10
	var ask strings.Builder
	for _, name := range deviceVariables() {
		fmt.Fprintf(&ask, `printf '%%s\n' "%[1]s${%[1]s+=}$%[1]s"; `, name) // without "=" where it is not set
	}
	lists := map[string]*string{}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := memory.HostOf(place).Start(ctx, "sh", "-c", ask.String())
	if err != nil {
		return lists
	}
	defer out.Close()
	defer context.AfterFunc(ctx, func() { _ = out.Close() })()
	text, err := io.ReadAll(io.LimitReader(out, longest))
	if err != nil {
		return lists
	}
	for line := range strings.Lines(string(text)) {
		if name, value, set := strings.Cut(strings.TrimRight(line, "\r\n"), "="); set {
			lists[name] = &value
		}
	}
	return lists
}
