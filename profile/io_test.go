package profile_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/forward"
	"github.com/llmprof/llmprof/profile"
)

func header() profile.Header {
	return profile.Header{
		Schema: profile.Schema, Version: profile.Version, Tool: "test", Source: "unit test",
		Device: profile.Device{Name: "a100-sxm-80gb", Count: 1},
		Deploy: deploy.Config{Model: "Qwen3-4B", TensorParallel: 1},
	}
}

// step is a prefill of one sequence.
func step(tokens int, samples ...float64) profile.Point {
	return profile.Point{
		Kind: profile.KindStep, Samples: samples, Clock: profile.ClockWall,
		Step: &profile.Step{Mode: profile.Prefill, BatchSize: 1, InputLen: tokens, Pass: forward.Prefill(1, tokens, 0)},
	}
}

func sample(n int) *profile.Profile {
	p := &profile.Profile{Header: header()}
	for i := range n {
		p.Points = append(p.Points, step(1<<(i%20), 0.01+0.001*float64(i), 0.012345678901234567))
	}
	return p
}

func encode(t testing.TB, name string, p *profile.Profile) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := p.Write(name, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWriteThenRead(t *testing.T) {
	for _, name := range []string{"x.llmprof", "x.llmprof.gz"} {
		p := sample(5)
		b := encode(t, name, p)
		if isGzip := bytes.HasPrefix(b, []byte{0x1f, 0x8b}); isGzip != profile.Compressed(name) {
			t.Errorf("%s: compressed is %v", name, isGzip)
		}
		got, warnings, err := profile.Read("another name", bytes.NewReader(b))
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		if diff := cmp.Diff(p, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if again := encode(t, name, got); !bytes.Equal(b, again) {
			t.Errorf("%s: writing twice gives different bytes", name)
		}
	}
}

func TestReadFaults(t *testing.T) {
	head := `{"schema":"llmprof/profile","version":"1.0"}` + "\n"
	point := `{"kind":"step","step":{"mode":"prefill","pass":{"prefill":[{"count":1,"new":4}]}},"samples_s":[0.5]}` + "\n"
	for _, c := range []struct {
		why, text string
		points    int
		warnings  []string // fragments, in order
		fatal     string   // fragment
	}{
		{why: "a header alone is a profile without points", text: head},
		{why: "a header without its line feed", text: strings.TrimSpace(head)},
		{why: "blank lines, carriage returns and a byte order mark are nothing", text: "\ufeff" + strings.ReplaceAll(head+"\n"+point, "\n", "\r\n"), points: 1},
		{why: "a bad line costs only itself", text: head + point + "{rubbish}\n" + point, points: 2, warnings: []string{"x: line 3: "}},
		{why: "a step without time", text: head + `{"kind":"step","step":{"mode":"prefill","pass":{"prefill":[{"count":1,"new":4}]}}}` + "\n" + point, points: 1, warnings: []string{"x: line 2: a step holds neither samples nor a summary"}},
		{why: "a time that is not positive", text: head + strings.Replace(point, "0.5", "0.5,-1", 1), warnings: []string{"x: line 2: samples_s[1] is -1"}},
		{why: "an unknown kind", text: head + `{"kind":"song"}` + "\n", warnings: []string{`x: line 2: unknown kind "song"`}},
		{why: "an unknown mode", text: head + strings.Replace(point, "prefill", "sing", 1), warnings: []string{`unknown mode "sing"`}},
		{why: "a pass beyond all bounds", text: head + strings.Replace(point, `"count":1,"new":4`, `"count":9999999,"new":4000000000`, 1), warnings: []string{"more than 281474976710656 tokens"}},
		{why: "a number too large for its type", text: head + strings.Replace(point, "0.5", "1e999", 1), warnings: []string{"1e999"}},
		{why: "a line that is cut off", text: head + point + point[:30], points: 1, warnings: []string{"x: line 3: the file ends in the middle of this line"}},
		{why: "a last line that lacks only its line feed is whole", text: head + point + strings.TrimSpace(point), points: 2},
		{why: "two profiles of the same conditions, one after the other", text: head + point + head + point, points: 2},
		{
			why:   "two profiles of different conditions",
			text:  `{"schema":"llmprof/profile","version":"1.0","device":{"name":"a"}}` + "\n" + point + `{"schema":"llmprof/profile","version":"1.0","device":{"name":"b"}}` + "\n" + point,
			fatal: `device differs: "a" in x: line 1, "b" in x: line 3`,
		},
		{why: "a newer minor version is read with a warning", text: strings.Replace(head, "1.0", "1.7", 1) + point, points: 1, warnings: []string{"version 1.7 is newer than 1.4"}},
		{why: "a newer major version is refused", text: strings.Replace(head, "1.0", "2.0", 1) + point, fatal: "x: llmprof/profile version 2.0 is newer than 1.4"},
		{why: "a newer major version is refused, whatever its header holds", text: `{"schema":"llmprof/profile","version":"2.0","device":7}` + "\n", fatal: "version 2.0 is newer"},
		{why: "a version that is none", text: strings.Replace(head, "1.0", "one", 1), fatal: `x: line 1: version is "one"`},
		{why: "no version", text: `{"schema":"llmprof/profile"}`, fatal: `x: line 1: version is ""`},
		{why: "another schema", text: strings.Replace(head, "profile", "plan", 1), fatal: `x: line 1: not a profile: schema is "llmprof/plan"`},
		{why: "no header", text: point, fatal: `x: line 1: not a profile: schema is ""`},
		{why: "no JSON", text: "time,value\n", fatal: "x: line 1: not the header of a profile"},
		{why: "nothing", text: "", fatal: "x: line 1: the file is empty"},
		{why: "deep nesting", text: head + strings.Repeat("[", 100000) + "\n" + point, points: 1, warnings: []string{"exceeded max depth"}},
		{why: "gzip that is cut off at once", text: "\x1f\x8b\x08", fatal: "read x: unexpected EOF"},
		{why: "rubbish behind the magic number of gzip", text: "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff", fatal: "flate: corrupt input"},
	} {
		t.Run(c.why, func(t *testing.T) {
			p, warnings, err := profile.Read("x", strings.NewReader(c.text))
			if c.fatal != "" {
				if err == nil || !strings.Contains(err.Error(), c.fatal) {
					t.Errorf("error %v, want %q", err, c.fatal)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(p.Points) != c.points {
				t.Errorf("%d points, want %d", len(p.Points), c.points)
			}
			if len(warnings) != len(c.warnings) {
				t.Fatalf("warnings %v, want %q", warnings, c.warnings)
			}
			for i, w := range warnings {
				if !strings.Contains(w.Error(), c.warnings[i]) {
					t.Errorf("warning %q, want %q", w, c.warnings[i])
				}
			}
		})
	}
}

func TestErrorTypes(t *testing.T) {
	_, _, err := profile.Read("x", strings.NewReader(`{"schema":"llmprof/profile","version":"3.1"}`))
	version, ok := errors.AsType[*profile.VersionError](err)
	if !ok || version.Version != "3.1" || version.Supported != profile.Version || version.Hint() == "" {
		t.Errorf("error %#v", err)
	}
	b := encode(t, "x", sample(3))
	_, warnings, err := profile.Read("x", bytes.NewReader(b[:len(b)-9]))
	if err != nil || len(warnings) != 1 {
		t.Fatal(err, warnings)
	}
	if bad, ok := errors.AsType[*profile.SyntaxError](warnings[0]); !ok || !bad.Truncated || bad.Line != 4 || bad.File != "x" {
		t.Errorf("warning %#v", warnings[0])
	}
}

func TestLongLines(t *testing.T) {
	head := `{"schema":"llmprof/profile","version":"1.0"}` + "\n"
	point := string(encode(t, "x", sample(1))[len(encode(t, "x", sample(0))):])
	long := strings.Repeat(" ", 17<<20) + "\n"
	p, warnings, err := profile.Read("x", strings.NewReader(head+long+point))
	if err != nil || len(p.Points) != 1 || len(warnings) != 1 || !strings.Contains(warnings[0].Error(), "x: line 2: longer than") {
		t.Errorf("%v, %v, %v", p, warnings, err)
	}
	big := step(1, make([]float64, 4<<20)...)
	for i := range big.Samples {
		big.Samples[i] = 0.123456
	}
	if err := (&profile.Profile{Points: []profile.Point{big}}).Write("x", io.Discard); err == nil || !strings.Contains(err.Error(), "want at most") {
		t.Errorf("a line that no reader takes is written: %v", err)
	}
}

func TestBomb(t *testing.T) {
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	fmt.Fprintln(zw, `{"schema":"llmprof/profile","version":"1.0"}`)
	blank := bytes.Repeat([]byte("\n"), 1<<20)
	for range 100 {
		if _, err := zw.Write(blank); err != nil {
			t.Fatal(err)
		}
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := profile.Read("x", &b)
	if size, ok := errors.AsType[*profile.SizeError](err); !ok || size.Compressed == 0 {
		t.Errorf("error %v", err)
	}
}

// TestGolden reads the file of every version that was ever written.
func TestGolden(t *testing.T) {
	for _, c := range []struct {
		file, version string
	}{{"v1.0.llmprof", "1.0"}, {"v1.0.llmprof.gz", "1.0"}, {"v1.1.llmprof", "1.1"}, {"v1.2.llmprof", "1.2"}, {"v1.3.llmprof", "1.3"}, {"v1.4.llmprof", "1.4"}} {
		b, err := os.ReadFile(filepath.Join("testdata", c.file))
		if err != nil {
			t.Fatal(err)
		}
		p, warnings, err := profile.Read(c.file, bytes.NewReader(b))
		if err != nil || len(warnings) > 0 {
			t.Fatal(err, warnings)
		}
		if diff := cmp.Diff(goldenProfile(c.version), p); diff != "" {
			t.Errorf("%s: %s", c.file, diff)
		}
		if c.version == profile.Version {
			if got := encode(t, c.file, p); !bytes.Equal(got, b) {
				t.Errorf("%s: writing gives\n%s\nwant\n%s", c.file, got, b)
			}
		}
	}
}

// goldenProfile is what testdata/v1.4.llmprof holds, every field once, and
// what a file of an older version does.
func goldenProfile(version string) *profile.Profile {
	raw := func(s string) map[string]json.RawMessage {
		return map[string]json.RawMessage{"key": json.RawMessage(s)}
	}
	h := header()
	h.Created, h.Host, h.Driver = "2026-01-02T03:04:05Z", "node7", "580.95"
	h.Device.Reported = "NVIDIA A100-SXM4-80GB"
	h.Deploy.Engine, h.Deploy.EngineVersion = "vllm", "0.32.0"
	h.Metadata = raw(`{"a":[1,2.50]}`)
	prefill := step(512, 0.0204, 0.0203)
	prefill.Summary = &profile.Summary{Mean: 0.02035, Std: 5e-05, Runs: 2}
	prefill.Warnings, prefill.Origin, prefill.Extra = []string{"clock not locked"}, "bench.json: results[0]", raw(`"<x>"`)
	h.Version = version
	old := &profile.Profile{Header: h, Points: []profile.Point{
		prefill,
		{
			Kind: profile.KindStep, Samples: []float64{0.0081}, Clock: profile.ClockDevice,
			Step: &profile.Step{Mode: profile.Decode, BatchSize: 4, InputLen: 512, OutputLen: 32, Pass: forward.Decode(4, 528)},
		},
		{
			Kind: profile.KindStep, Samples: []float64{0.1}, Clock: profile.ClockCPU,
			Step: &profile.Step{Mode: profile.Mixed, Pass: forward.Pass{
				Prefill: []forward.Chunk{{Count: 2, New: 256, Context: 1024}}, Decode: forward.Sequences{Count: 2, SumContext: 30}, DecodeContexts: []int{10, 20},
			}},
		},
		{Kind: profile.KindFailure, Reason: "oom", Step: &profile.Step{BatchSize: 64, InputLen: 16384, OutputLen: 32}},
	}}
	if version == "1.0" {
		return old
	}
	old.Points = append(old.Points,
		profile.Point{
			Kind: profile.KindStep, Samples: []float64{0.0521}, Clock: profile.ClockWall,
			Step: &profile.Step{Mode: profile.Mixed, Totals: &forward.Totals{PrefillRequests: 2, PrefillTokens: 511, DecodeRequests: 3, DecodeTokens: 4, KVTokens: 983}},
		},
		profile.Point{
			Kind: profile.KindLayer, Samples: []float64{9.31067e-06}, Clock: profile.ClockDevice,
			Layer: &profile.Layer{Name: "attention", Tokens: 16, Context: 32, Sequences: 8, SequenceContext: 1024, LongSequences: 2, LongContext: 4096, ActivatedExperts: 6, TensorParallel: 2},
		},
		profile.Point{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryKVCache, Bytes: 1 << 30, Resolution: 10, Tokens: 524288, Blocks: 4096, BlockSize: 128, Worker: "Worker_TP0"}},
		profile.Point{Kind: profile.KindRequest, Request: &profile.Request{ID: "7", InputLen: 591, OutputLen: 22, CachedLen: 32, Scheduled: 0.2, Sent: 0.201, First: 0.305, Last: 0.411}},
	)
	if version == "1.1" {
		return old
	}
	device := 1
	old.Points = append(old.Points,
		profile.Point{Kind: profile.KindMemory, Memory: &profile.Memory{Part: profile.MemoryUsed, Phase: profile.PhaseBaseline, At: 0.5, Device: &device}},
		profile.Point{Kind: profile.KindTelemetry, Telemetry: &profile.Telemetry{
			Source: "nvml", Device: 1, UUID: "GPU-7", Name: "NVIDIA A100", MemoryTotal: 80 << 30, At: []float64{0, 0.1},
			Used: readings[int64](0, 1<<30), Process: readings[int64](0, 1<<29), Utilization: readings(0, 0.5), Power: readings[float64](60, 300),
			Temperature: readings[float64](30, 31), Clock: readings(1e9, 1.4e9),
		}},
	)
	if version == "1.2" {
		return old
	}
	yes, no, slowdown, hits := true, false, 1.25, 4096.0
	old.Header.Deploy.MaxNumSeqs, old.Header.Deploy.ChunkedPrefill, old.Header.Deploy.PrefixCaching = 64, &no, &yes
	old.Header.Deploy.SchedulingPolicy = "priority"
	old.Points = append(old.Points,
		profile.Point{
			Kind: profile.KindWorkload, Samples: []float64{0.051, 0.052}, Clock: profile.ClockWall, Workload: &profile.Workload{
				Type: profile.Mixed, Side: profile.Prefill, NewTokens: 512, CachedBlocks: 32, BlockSize: 16, Requests: 8, OutputLen: 1, Runs: 2, Slowdown: &slowdown,
			},
		},
		profile.Point{Kind: profile.KindServer, Server: &profile.Server{
			Window: "steady", Engine: "vllm", Seconds: 30, Readings: 31, Running: &profile.Gauge{Mean: 7.5, Max: 8}, PrefixHits: &hits,
			Cache: &profile.KVCache{BlockSize: 16, Blocks: 100, Tokens: 1600},
		}},
	)
	if version == "1.3" {
		return old
	}
	old.Points = append(old.Points,
		profile.Point{
			Kind: profile.KindLayer, Samples: []float64{9.059e-05}, Clock: profile.ClockDevice,
			Layer: &profile.Layer{Name: "all_reduce", MessageBytes: 1310720, TensorParallel: 2},
		},
		profile.Point{
			Kind: profile.KindStep, Samples: []float64{0.0082}, Clock: profile.ClockDevice,
			Step: &profile.Step{Mode: profile.Decode, BatchSize: 2, InputLen: 512, Pass: forward.Pass{Decode: forward.Sequences{Count: 2, SumContext: 1100, Shortest: 500, Longest: 600}}},
		},
	)
	return old
}

// readings are figures of which none is missing.
func readings[T any](values ...T) []*T {
	out := make([]*T, len(values))
	for i := range values {
		out[i] = &values[i]
	}
	return out
}

// memory is a file in memory.
type memory struct {
	b  []byte
	at int64
}

func (m *memory) Read(p []byte) (int, error) {
	if m.at >= int64(len(m.b)) {
		return 0, io.EOF
	}
	n := copy(p, m.b[m.at:])
	m.at += int64(n)
	return n, nil
}

func (m *memory) Write(p []byte) (int, error) {
	m.b = append(m.b[:m.at:m.at], append(bytes.Clone(p), m.b[min(m.at+int64(len(p)), int64(len(m.b))):]...)...)
	m.at += int64(len(p))
	return len(p), nil
}

func (m *memory) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += m.at
	case io.SeekEnd:
		offset += int64(len(m.b))
	}
	m.at = offset
	return offset, nil
}

func (m *memory) Truncate(size int64) error {
	m.b = m.b[:size]
	return nil
}

// TestCrash cuts a file at every byte, as a crash would, and appends to it:
// every point whose write had ended is still there, the new ones follow, and
// the file is whole again.
func TestCrash(t *testing.T) {
	for _, name := range []string{"x.llmprof", "x.llmprof.gz"} {
		var file bytes.Buffer
		w, err := profile.NewWriter(name, &file, header())
		if err != nil {
			t.Fatal(err)
		}
		var written []int // size of the file after each point
		original := sample(6)
		for _, p := range original.Points {
			if err := w.Write(p); err != nil {
				t.Fatal(err)
			}
			written = append(written, file.Len())
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		for cut := range file.Len() + 1 {
			f := &memory{b: bytes.Clone(file.Bytes()[:cut])}
			want := 0
			for want < len(written) && written[want] <= cut {
				want++
			}
			more, err := profile.Append(name, f, header())
			if err != nil {
				t.Fatalf("%s cut at %d: %v", name, cut, err)
			}
			if err := errors.Join(more.Write(step(77, 0.7)), more.Close()); err != nil {
				t.Fatal(err)
			}
			p, warnings, err := profile.Read(name, bytes.NewReader(f.b))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%s cut at %d: %v, %v", name, cut, err, warnings)
			}
			// A line that lacks only its line feed is kept as well.
			n := len(p.Points)
			if n != want+1 && (profile.Compressed(name) || n != want+2 || cut+1 != written[want]) {
				t.Fatalf("%s cut at %d: %d points, want %d", name, cut, n, want+1)
			}
			wantPoints := append(original.Points[:n-1:n-1], step(77, 0.7))
			if diff := cmp.Diff(wantPoints, p.Points); diff != "" {
				t.Fatalf("%s cut at %d: %s", name, cut, diff)
			}
		}
	}
}

// TestReadAfterCrash reads the cut-off files as they are.
func TestReadAfterCrash(t *testing.T) {
	for _, name := range []string{"x.llmprof", "x.llmprof.gz"} {
		var file bytes.Buffer
		w, err := profile.NewWriter(name, &file, header())
		if err != nil {
			t.Fatal(err)
		}
		start := file.Len()
		var written []int
		for _, p := range sample(6).Points {
			if err := w.Write(p); err != nil {
				t.Fatal(err)
			}
			written = append(written, file.Len())
		}
		for cut := start; cut < file.Len(); cut++ {
			p, warnings, err := profile.Read(name, bytes.NewReader(file.Bytes()[:cut]))
			if err != nil {
				t.Fatalf("%s cut at %d: %v", name, cut, err)
			}
			want := 0
			for want < len(written) && written[want] <= cut {
				want++
			}
			if len(p.Points) < want || len(p.Points) > want+1 {
				t.Errorf("%s cut at %d: %d points, want %d", name, cut, len(p.Points), want)
			}
			for _, w := range warnings {
				if bad, ok := errors.AsType[*profile.SyntaxError](w); !ok || !bad.Truncated {
					t.Errorf("%s cut at %d: %v", name, cut, w)
				}
			}
			if profile.Compressed(name) && len(p.Points) == want && len(warnings) != 1 {
				t.Errorf("%s cut at %d: compressed data is cut off without a warning", name, cut)
			}
		}
	}
}

func TestAppendRefuses(t *testing.T) {
	other := header()
	other.Device.Name = "h100-sxm-80gb"
	for _, c := range []struct {
		why, text, want string
		header          profile.Header
	}{
		{"points of another device", string(encode(t, "x", sample(2))), `device differs: "a100-sxm-80gb" in x, "h100-sxm-80gb" in the points to append`, other},
		{"a file that is no profile", "my only copy of the notes", "append to x: not a profile", header()},
		{"a file that is no profile, several lines", "{a,b\n1,2\n3", "append to x: x: line 1", header()},
		{"a newer major version", `{"schema":"llmprof/profile","version":"2.0"}` + "\n", "version 2.0 is newer", header()},
		{"another schema that breaks off", `{"schema":"llmprof/plan","vers`, "append to x: x: line 1", header()},
	} {
		t.Run(c.why, func(t *testing.T) {
			f := &memory{b: []byte(c.text)}
			_, err := profile.Append("x", f, c.header)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if string(f.b) != c.text {
				t.Errorf("the file was changed to %q", f.b)
			}
		})
	}
}

func TestConcatenatedGzip(t *testing.T) {
	both := append(encode(t, "a.gz", sample(2)), encode(t, "b.gz", sample(3))...)
	p, warnings, err := profile.Read("both.gz", bytes.NewReader(both))
	if err != nil || len(warnings) > 0 || len(p.Points) != 5 {
		t.Errorf("%v, %v, %v", p, warnings, err)
	}
}

// shortDisk fails after some bytes.
type shortDisk struct{ left int }

func (d *shortDisk) Write(p []byte) (int, error) {
	n := min(len(p), d.left)
	d.left -= n
	if n < len(p) {
		return n, errors.New("no space left")
	}
	return n, nil
}

func TestWriterReportsEveryFailure(t *testing.T) {
	for _, name := range []string{"x", "x.gz"} {
		if err := sample(200).Write(name, &shortDisk{left: 300}); err == nil || !strings.Contains(err.Error(), "no space left") {
			t.Errorf("%s: whole profile: %v", name, err)
		}
		w, err := profile.NewWriter(name, &shortDisk{left: 500}, header())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			err = w.Write(step(1+i, 1/float64(3+i)))
		}
		if err == nil || w.Close() == nil {
			t.Errorf("%s: point by point: %v", name, err)
		}
	}
	w, err := profile.NewWriter("x", io.Discard, header())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(step(1, -1)); err == nil {
		t.Error("a negative time is written")
	}
	if err := w.Write(step(1, 1)); err != nil {
		t.Errorf("a refused point spoils the file: %v", err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(encode(f, "x", sample(2)))
	f.Add(encode(f, "x.gz", sample(2)))
	f.Add(encode(f, "x", goldenProfile(profile.Version)))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, _, err := profile.Read("x", bytes.NewReader(b))
		if err != nil {
			return
		}
		profile.Lint(p, profile.LintOptions{})
		p.Header.Schema, p.Header.Version = profile.Schema, profile.Version
		written := encode(t, "x", p)
		again, warnings, err := profile.Read("x", bytes.NewReader(written))
		if err != nil || len(warnings) > 0 {
			t.Fatalf("what was written cannot be read: %v, %v\n%s", err, warnings, written)
		}
		if second := encode(t, "x", again); !bytes.Equal(written, second) {
			t.Errorf("reading and writing again changes\n%s\nto\n%s", written, second)
		}
	})
}

// FuzzAppend appends to whatever stands in a file: the file is refused and
// left as it is, or a profile afterwards.
func FuzzAppend(f *testing.F) {
	f.Add(encode(f, "x", sample(2)))
	f.Add(encode(f, "x.gz", sample(2)))
	f.Add([]byte(`{"schema":"llmprof/pro`))
	f.Fuzz(func(t *testing.T, b []byte) {
		file := &memory{b: bytes.Clone(b)}
		w, err := profile.Append("x", file, profile.Header{})
		if err != nil {
			if !bytes.Equal(file.b, b) {
				t.Errorf("refused with %v, but changed", err)
			}
			return
		}
		if err := errors.Join(w.Write(step(3, 0.25)), w.Close()); err != nil {
			t.Fatal(err)
		}
		p, _, err := profile.Read("x", bytes.NewReader(file.b))
		if err != nil {
			return // a fault in the middle of the file stays one
		}
		if n := len(p.Points); n == 0 || p.Points[n-1].Samples[0] != 0.25 {
			t.Errorf("the appended point is not the last of %d", n)
		}
	})
}
