package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/engine"
	"github.com/llmprof/llmprof/engine/place"
	"github.com/llmprof/llmprof/gpu"
	"github.com/llmprof/llmprof/gpu/nvml"
	"github.com/llmprof/llmprof/measure/memory"
	"github.com/llmprof/llmprof/report"
	"github.com/llmprof/llmprof/unit"
)

// doctorPython says what a Python has of the engines, as one JSON object.
const doctorPython = `
import importlib.metadata, json, sys
found = {"python": sys.version.split()[0], "program": sys.executable}
for name in ("torch", "transformers", "vllm", "sglang"):
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
if "torch" in found:
    try:
        import torch
        found["devices"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    except Exception as e:
        found["torch_error"] = str(e)
print(json.dumps(found))
`

// doctorTimeout bounds one question to a place.
const doctorTimeout = 60 * time.Second

func (a *app) doctorCommand() *cobra.Command {
	var where, python string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "What this machine can measure, and what is missing",
		Long: `Doctor looks for devices, engines and the places where engines can run, on this
machine or with --place in a container, a pod or on another host, and says of
what is missing how to get it. It starts no engine and changes nothing.`,
		Example: `  llmprof doctor
  llmprof doctor --python ~/venv/bin/python
  llmprof doctor --place ssh:gpu7 --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := place.Parse(where)
			if err != nil {
				return err
			}
			return a.doctor(cmd.Context(), p, python)
		},
	}
	cmd.Flags().StringVar(&where, "place", "local", "where to look: "+placeForms)
	cmd.Flags().StringVar(&python, "python", "", "Python whose packages are looked at (default: $LLMPROF_PYTHON, the active environment's, python3)")
	onlyOnCommandLine(cmd.Flags(), "python")
	return cmd
}

func (a *app) doctor(ctx context.Context, p engine.Place, python string) error {
	if err := p.Available(ctx); err != nil {
		return err
	}
	d := &examination{ctx: ctx, place: p}
	if p.String() == "local" {
		d.add("machine", "this machine", fmt.Sprintf("%s/%s, %d CPUs", runtime.GOOS, runtime.GOARCH, runtime.NumCPU()))
	}
	d.devices()
	d.python(python)
	d.llamaCpp()
	if p.String() == "local" {
		d.places()
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	document := report.Doctor(p.String(), d.checks, version())
	return a.write(document, report.DoctorTables(document)...)
}

// examination collects what doctor finds.
type examination struct {
	ctx    context.Context
	place  engine.Place
	checks []report.Check
}

func (d *examination) add(area, name, found string) {
	d.checks = append(d.checks, report.Check{Area: area, Name: name, Usable: true, Found: found})
}

func (d *examination) lack(area, name, missing, remedy string) {
	d.checks = append(d.checks, report.Check{Area: area, Name: name, Missing: missing, Remedy: remedy})
}

// ask runs a command at the place and returns what it prints.
func (d *examination) ask(argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(d.ctx, doctorTimeout)
	defer cancel()
	p, err := d.place.Start(ctx, engine.Command{Argv: argv})
	if err != nil {
		return "", err
	}
	_ = p.Stdin().Close() // it has nothing to read
	var out bytes.Buffer
	_, err = io.Copy(&out, io.LimitReader(p.Stdout(), 1<<20))
	_, _ = io.Copy(io.Discard, p.Stdout()) // so that it can end
	return out.String(), errors.Join(err, p.Wait())
}

// devices tries everything that reads devices. The first that works is what
// profile memory takes.
func (d *examination) devices() {
	host := memory.HostOf(d.place)
	found := gpu.Detect(d.ctx, host)
	if d.place.String() == "local" {
		found = append([]gpu.Found{nvmlFound(d.ctx)}, found...)
	}
	seen := map[string]bool{}
	for _, f := range found {
		if !f.Usable {
			d.lack("sampler", f.Name, f.Why, "")
			continue
		}
		var devices []string
		for _, r := range f.Devices {
			name := r.Name
			if name == "" {
				name = fmt.Sprintf("device %d", r.Index)
			}
			devices = append(devices, name)
			if key := fmt.Sprint(r.Index, r.UUID); r.MemoryTotal != nil && !seen[key] && f.Name != memory.SamplerProc {
				seen[key] = true
				text := unit.Bytes(*r.MemoryTotal).String()
				if r.MemoryUsed != nil {
					text += ", " + unit.Bytes(*r.MemoryUsed).String() + " used"
				}
				d.add("device", name, text)
			}
		}
		d.add("sampler", f.Name, strings.Join(devices, ", "))
	}
	if len(seen) == 0 {
		d.lack("device", "GPU", "no driver's tool lists one", "")
	}
}

// nvmlFound tries NVIDIA's library.
func nvmlFound(ctx context.Context) gpu.Found {
	source, err := nvml.Open()
	if err != nil {
		return gpu.Found{Name: memory.SamplerNVML, Why: err.Error()}
	}
	return gpu.Try(ctx, source)
}

// python looks for the engines that are Python packages.
func (d *examination) python(program string) {
	// The same interpreter that the engines' drivers take.
	text, err := d.ask(engine.PythonCommand(program, "-c", doctorPython)...)
	if err != nil {
		err = engine.PythonMissing(err, d.place, program, "")
		d.lack("engine", "python", err.Error(), "install Python 3.10 or newer, or name one: --python PATH")
		return
	}
	var found struct {
		Python, Program, Torch, Transformers, VLLM, SGLang string
		Devices                                            []string
		TorchError                                         string `json:"torch_error"`
	}
	if i := strings.LastIndex(strings.TrimSpace(text), "\n"); i >= 0 {
		text = text[i+1:] // libraries may chatter before
	}
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		d.lack("engine", "python", fmt.Sprintf("it does not answer as expected: %v", err), "")
		return
	}
	d.add("engine", "python", found.Python+" ("+found.Program+")")
	install := found.Program + " -m pip install "
	switch {
	case found.TorchError != "":
		d.lack("engine", "torch", "it cannot be imported: "+found.TorchError, "")
	case found.Torch == "":
		d.lack("engine", "torch", "not installed in this Python", install+"torch transformers")
	case found.Transformers == "":
		d.lack("engine", "torch", "torch "+found.Torch+" without transformers", install+"transformers")
	default:
		text := fmt.Sprintf("torch %s, transformers %s", found.Torch, found.Transformers)
		if len(found.Devices) > 0 {
			text += ", " + strings.Join(found.Devices, ", ")
		} else {
			text += ", CPU only"
		}
		d.add("engine", "torch", text)
	}
	for _, e := range []struct{ name, version string }{{"vllm", found.VLLM}, {"sglang", found.SGLang}} {
		if e.version == "" {
			d.lack("engine", e.name, "not installed in this Python", install+e.name)
			continue
		}
		d.add("engine", e.name, e.version)
	}
	if found.VLLM != "" {
		if _, err := d.ask("sh", "-c", "command -v vllm"); err != nil {
			d.lack("engine", "vllm serve", "the program vllm is not on the PATH", "it lies beside the interpreter; name it: --program "+found.Program[:strings.LastIndex(found.Program, "/")+1]+"vllm")
		}
	}
}

// llamaCpp looks for both ways to llama.cpp.
func (d *examination) llamaCpp() {
	if _, err := d.ask("llama-bench", "--help"); err == nil {
		d.add("engine", "llama-bench", "on the PATH")
	} else {
		d.lack("engine", "llama-bench", "not on the PATH", "build llama.cpp, or name it: --program PATH")
	}
	version, err := d.ask("node", "--version")
	if err != nil {
		d.lack("engine", "node-llama-cpp", "Node.js is not on the PATH", "install Node.js 20 or newer")
		return
	}
	found, err := d.ask("node", "-e", `const fs = require("fs"), path = require("path"), os = require("os");
const folders = [process.env.LLMPROF_NODE_LLAMA_CPP, process.cwd(), path.join(os.homedir(), ".cache/llmprof/engines/node-llama-cpp-3.22.1")];
const file = folders.filter(Boolean).map(f => path.join(f, "node_modules/node-llama-cpp/package.json")).find(f => fs.existsSync(f));
console.log(JSON.parse(fs.readFileSync(file)).version);`)
	if err != nil {
		d.lack("engine", "node-llama-cpp", "node "+strings.TrimSpace(version)+" without node-llama-cpp in this folder or $LLMPROF_NODE_LLAMA_CPP",
			"npm install --omit=optional --ignore-scripts node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1")
		return
	}
	d.add("engine", "node-llama-cpp", strings.TrimSpace(found)+", node "+strings.TrimSpace(version))
}

// places looks for what containers, pods and hosts are reached through.
func (d *examination) places() {
	for _, service := range []struct {
		name, remedy string
		sockets      []string
	}{
		{"docker", "install and start Docker, or set DOCKER_HOST", []string{
			strings.TrimPrefix(os.Getenv("DOCKER_HOST"), "unix://"), "/var/run/docker.sock", filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "docker.sock"),
		}},
		{"podman", "systemctl --user start podman.socket", []string{
			strings.TrimPrefix(os.Getenv("CONTAINER_HOST"), "unix://"), filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "podman", "podman.sock"), "/run/podman/podman.sock",
		}},
	} {
		found, fault := "", errors.New("no socket of its service")
		for _, socket := range service.sockets {
			if _, err := os.Stat(socket); err != nil {
				continue
			}
			connection, err := (&net.Dialer{Timeout: time.Second}).DialContext(d.ctx, "unix", socket)
			if err != nil {
				fault = err
				continue
			}
			_ = connection.Close() // it was only to see
			found = socket
			break
		}
		if found == "" {
			remedy := service.remedy
			if errors.Is(fault, fs.ErrPermission) {
				remedy = "give this user access to the socket: sudo usermod -aG " + service.name + " $USER, and log in again"
			}
			d.lack("place", service.name, fault.Error(), remedy)
			continue
		}
		d.add("place", service.name, found)
	}
	for _, program := range []string{"kubectl", "ssh"} {
		path, err := exec.LookPath(program)
		if err != nil {
			d.lack("place", program, "not on the PATH", "")
			continue
		}
		d.add("place", program, path)
	}
}
