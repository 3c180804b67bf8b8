package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"llmprof": main, "fakeprobe": fakeProbe, "fakevllm": fakeVLLM})
}

// TestScripts runs the command as a user does: each script is a session in
// an empty home, with its expected output and exit codes.
func TestScripts(t *testing.T) {
	builtin, err := filepath.Abs("builtin")
	if err != nil {
		t.Fatal(err)
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			for name, value := range map[string]string{
				"HOME": home, "XDG_CONFIG_HOME": filepath.Join(home, ".config"), "XDG_CACHE_HOME": filepath.Join(home, ".cache"),
				"HF_HUB_OFFLINE": "1", "REPORT": filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(builtin))), "cost", "llmprofiler", "testdata", "report_llama2-70b_4185809.txt"),
				"SERVED": filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(builtin))), "fit", "testdata", "vllm-cpu", "b-burst-prefix"),
				"BENCH":  filepath.Join(builtin, "benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json.gz"),
			} {
				env.Setenv(name, value)
			}
			return os.MkdirAll(home, 0o755)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
	})
}

// exits runs a command and checks its exit code: "exits 3 llmprof …".
func exits(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND [ARG...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	if got := exitStatus(err); args[0] != got {
		ts.Fatalf("%v: exit code %s, want %s", args[1:], got, args[0])
	}
}
