package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/store"
)

// bench is a folder with llmprof, an engine that is faked, and a store, in which
// campaigns run as processes.
type bench struct {
	t       *testing.T
	dir     string
	environ []string
	stderr  bytes.Buffer // of the last command
}

func newBench(t *testing.T) *bench {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, dir: t.TempDir()}
	for _, name := range []string{"llmprof", "fakeprobe"} {
		if err := os.Symlink(self, filepath.Join(b.dir, name)); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	b.env(
		"PATH="+b.dir+string(filepath.ListSeparator)+os.Getenv("PATH"), "HOME="+b.dir, "XDG_CONFIG_HOME="+filepath.Join(b.dir, "config"),
		"LLMPROF_STORE="+b.database(), "HF_HUB_OFFLINE=1",
	)
	return b
}

func (b *bench) database() string { return filepath.Join(b.dir, "store.db") }

// env sets variables of the commands.
func (b *bench) env(pairs ...string) { b.environ = append(b.environ, pairs...) }

func (b *bench) write(name, text string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(b.dir, "llmprof"), args...)
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), b.environ...)
	return cmd
}

// start starts a command whose output nobody reads.
func (b *bench) start(args ...string) *exec.Cmd {
	b.t.Helper()
	cmd := b.command(args...)
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	return cmd
}

// exits runs a command, checks its exit code and returns what it wrote to
// stdout.
func (b *bench) exits(code int, args ...string) string {
	b.t.Helper()
	b.stderr.Reset()
	cmd := b.command(args...)
	cmd.Stderr = &b.stderr
	out, err := cmd.Output()
	if got := cmd.ProcessState.ExitCode(); got != code {
		b.t.Fatalf("llmprof %s: exit code %d, want %d (%v)\n%s%s", strings.Join(args, " "), got, code, err, out, b.stderr.String())
	}
	return string(out)
}

// says checks that the last command wrote something to stderr.
func (b *bench) says(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		if !strings.Contains(b.stderr.String(), text) {
			b.t.Errorf("stderr does not say %q:\n%s", text, b.stderr.String())
		}
	}
}

// open opens the store.
func (b *bench) open() *store.Store {
	b.t.Helper()
	s, err := store.Open(b.t.Context(), b.database())
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// cells are those of the newest run.
func (b *bench) cells() []store.Cell {
	b.t.Helper()
	s := b.open()
	defer s.Close()
	runs, err := s.Runs(b.t.Context())
	if err != nil || len(runs) == 0 {
		b.t.Fatal("no run:", err)
	}
	cells, err := s.Cells(b.t.Context(), runs[0].Run.ID)
	if err != nil {
		b.t.Fatal(err)
	}
	return cells
}

// count is the number of cells of the newest run in a state.
func (b *bench) count(state store.State) int {
	n := 0
	for _, c := range b.cells() {
		if c.State == state {
			n++
		}
	}
	return n
}

// files lists all files, relative to the folder.
func (b *bench) files() []string {
	b.t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(b.dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, filepath.FromSlash(name))
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return names
}

// smallCampaign has six cells of one model.
const smallCampaign = `models:
  - model_id: owner/tiny
    place: local
    engine: probe
    dtype: bfloat16
    input_lengths: [64, 128]
    output_lengths: [4]
    batch_sizes: [1, 2, 4]
`

// batchOn runs a campaign's file on the fake engine.
func batchOn(file string, more ...string) []string {
	return append([]string{"batch", file, "--program", "fakeprobe", "--sampler", "none", "--sample-every", "1ms", "--backoff", "1ms"}, more...)
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// TestBatchInterrupted: Ctrl-C keeps what is done, gives the cell in flight back
// and says how to go on; going on runs each remaining cell, on one load.
func TestBatchInterrupted(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a process cannot be interrupted there from outside")
	}
	b := newBench(t)
	b.write("c.yaml", smallCampaign)
	b.env("FAKE_PROBE_STARTS=" + filepath.Join(b.dir, "starts"))
	var stderr bytes.Buffer
	cmd := b.command(batchOn("c.yaml")...)
	cmd.Env = append(cmd.Env, "FAKE_PROBE_SCRIPT=hang:b4i128") // it does not come to its end before
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a profile", func() bool {
		return slices.ContainsFunc(b.files(), func(name string) bool { return strings.HasSuffix(name, ".json") })
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code says how it ended
	if got := cmd.ProcessState.ExitCode(); got != codeInterrupted {
		t.Errorf("exit code %d, want %d", got, codeInterrupted)
	}
	for _, want := range []string{"of 6 cells done; --resume goes on", "llmprof: interrupted"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("stderr does not say %q:\n%s", want, stderr.String())
		}
	}
	if done, pending := b.count(store.Done), b.count(store.Pending); done == 0 || pending == 0 || done+pending != 6 {
		t.Errorf("%d cells are done and %d pending", done, pending)
	}
	b.exits(0, batchOn("c.yaml", "--resume")...)
	starts, err := os.ReadFile(filepath.Join(b.dir, "starts"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(starts, []byte("\n")); n != 2 || b.count(store.Done) != 6 {
		t.Errorf("%d starts, %d cells done", n, b.count(store.Done))
	}
	for _, c := range b.cells() {
		if c.Attempts > 2 {
			t.Errorf("cell %d was tried %d times", c.Index, c.Attempts)
		}
	}
}

// TestBatchLocked: a run that another process works on is left alone, one whose
// process is dead is taken over.
func TestBatchLocked(t *testing.T) {
	b := newBench(t)
	b.write("c.yaml", smallCampaign)
	b.exits(0, batchOn("c.yaml", "--only", "batch=1")...)
	s := b.open()
	runs, err := s.Runs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	release, err := s.Lock(t.Context(), runs[0].Run.ID, ownerName(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b.exits(codeOutside, batchOn("c.yaml", "--resume")...)
	b.says("is in use by "+ownerName(), "hint: wait for it or stop it")
	if err := release(); err != nil {
		t.Fatal(err)
	}
	dead := exec.Command(filepath.Join(b.dir, "llmprof"), "--version")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	host, _, _ := strings.Cut(ownerName(), ":")
	if _, err := s.Lock(context.WithoutCancel(t.Context()), runs[0].Run.ID, host+":"+strconv.Itoa(dead.ProcessState.Pid()), time.Hour); err != nil {
		t.Fatal(err)
	}
	b.exits(0, batchOn("c.yaml", "--resume")...)
	if n := b.count(store.Done); n != 6 {
		t.Errorf("%d cells are done", n)
	}
	_ = s.Close() // its lock was taken away
}

// TestOwnerDied: only what is known to be gone counts as dead.
func TestOwnerDied(t *testing.T) {
	host, _, _ := strings.Cut(ownerName(), ":")
	for _, c := range []struct {
		why, owner string
		want       bool
	}{
		{"an earlier process with the number of this one", ownerName(), true},
		{"the parent lives", host + ":" + strconv.Itoa(os.Getppid()), false},
		{"another machine", "elsewhere.example:" + strconv.Itoa(os.Getpid()), false},
		{"no number", host + ":x", false},
		{"no process has this number", host + ":-4", false},
		{"not a process", "somebody", false},
	} {
		if got := ownerDied(c.owner); got != c.want {
			t.Errorf("%s: %s is dead: %v", c.why, c.owner, got)
		}
	}
}

// TestSweep removes what the dead left and nothing else.
func TestSweep(t *testing.T) {
	folder := t.TempDir()
	host, _, _ := strings.Cut(ownerName(), ":")
	stay := []string{
		"a.json", ".llmprof-", ".llmprof-1", ".llmprof-x-y-z", ".llmprof-elsewhere-" + strconv.Itoa(os.Getpid()) + "-1",
		".llmprof-" + host + "-" + strconv.Itoa(os.Getppid()) + "-1",
	}
	for _, name := range append(stay, ".llmprof-"+host+"-"+strconv.Itoa(os.Getpid())+"-1") {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sweep(folder)
	sweep(filepath.Join(folder, "nowhere"))
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	slices.Sort(stay)
	if diff := cmp.Diff(stay, left); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestBatchSecrets: a secret that the engine gets is in no file and not in the
// database, while the run is going on and afterwards.
func TestBatchSecrets(t *testing.T) {
	b := newBench(t)
	b.write("c.yaml", smallCampaign)
	const secret = "hf_abcdefghijklmnopqrstuvwx"
	b.env("FAKE_PROBE_ENVIRONMENT=" + filepath.Join(b.dir, "fakeprobe.log"))
	b.exits(0, batchOn("c.yaml", "--engine-env", "HF_TOKEN="+secret, "--engine-env", "NCCL_DEBUG=WARN", "-v")...)
	if strings.Contains(b.stderr.String(), secret) {
		t.Error("stderr shows the secret")
	}
	found := map[string]bool{}
	for _, name := range b.files() {
		text, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		found["secret"] = found["secret"] || name != "fakeprobe.log" && bytes.Contains(text, []byte(secret))
		found["plain"] = found["plain"] || bytes.Contains(text, []byte("NCCL_DEBUG"))
		if name == "fakeprobe.log" {
			found["handed over"] = bytes.Contains(text, []byte("HF_TOKEN="+secret))
		}
	}
	if diff := cmp.Diff(map[string]bool{"secret": false, "plain": true, "handed over": true}, found); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	out := b.exits(0, batchOn("c.yaml", "--engine-env", "HF_TOKEN="+secret, "--dry-run", "--json")...)
	if strings.Contains(out, secret) {
		t.Error("the dry run shows the secret")
	}
}

// TestBatchSamples plans every sample file, with and without a device.
func TestBatchSamples(t *testing.T) {
	names, err := filepath.Glob(filepath.Join("..", "..", "campaign", "testdata", "configs_*", "*.y*ml"))
	if err != nil || len(names) < 30 {
		t.Fatal(names, err)
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	for _, name := range names {
		for _, device := range []string{"", "h100-sxm-80gb"} {
			t.Run(filepath.Base(filepath.Dir(name))+"/"+filepath.Base(name)+"/"+device, func(t *testing.T) { planSample(t, name, device) })
		}
	}
}

func planSample(t *testing.T, name, device string) {
	args := []string{"batch", name, "--dry-run", "--json"}
	if device != "" {
		args = append(args, "--gpu", device)
	}
	var out, messages bytes.Buffer
	if err := run(t.Context(), args, strings.NewReader(""), &out, &messages); err != nil {
		t.Fatal(err)
	}
	var plan campaign.Plan
	decoder := json.NewDecoder(&out)
	if err := decoder.Decode(&plan); err != nil {
		t.Fatal(err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		t.Errorf("stdout holds more than one document: %v", err)
	}
	if plan.Count != len(plan.Cells) || plan.Schema != "llmprof/batch-plan" {
		t.Errorf("count %d, %d cells, schema %q", plan.Count, len(plan.Cells), plan.Schema)
	}
	for _, c := range plan.Cells {
		switch {
		case len(c.Command) == 0 || !slices.Contains(c.Command, c.ModelID):
			t.Fatalf("cell %d: the command is %q", c.Index, c.Command)
		case c.Fits == nil && c.Reason == "", c.Fits != nil && !*c.Fits && c.Reason == "":
			t.Fatalf("cell %d: nothing says why it does not fit, or why that is not known", c.Index)
		case c.Fits != nil && *c.Fits && (c.Predicted.Total == nil || c.Predicted.Basis == ""):
			t.Fatalf("cell %d fits, and %+v", c.Index, c.Predicted)
		}
	}
}
