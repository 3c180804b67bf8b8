package load_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/llmprof/llmprof/deploy"
	"github.com/llmprof/llmprof/load"
)

// TestAboutSGLang reads the settings of a server, and none that it does not say.
func TestAboutSGLang(t *testing.T) {
	for _, c := range []struct {
		why, answer string
		want        deploy.Config
		pool        int
	}{
		{
			"all of them", `{"page_size":16,"max_running_requests":48,"chunked_prefill_size":8192,"disable_radix_cache":false,"max_total_num_tokens":90000,
			"mem_fraction_static":0.88,"tp_size":2,"schedule_policy":"fcfs","context_length":4096,"version":"0.5.10","internal_states":[{}]}`,
			deploy.Config{BlockSize: 16, MaxNumSeqs: 48, ChunkedPrefill: new(true), PrefixCaching: new(true), MemFractionStatic: 0.88, TensorParallel: 2, SchedulingPolicy: "fcfs", MaxModelLen: 4096},
			90000,
		},
		{
			"prompts in one step, no cache, and what is left to the engine", `{"page_size":1,"max_running_requests":null,"chunked_prefill_size":-1,"disable_radix_cache":true,"mem_fraction_static":null,"context_length":null}`,
			deploy.Config{BlockSize: 1, ChunkedPrefill: new(false), PrefixCaching: new(false)},
			0,
		},
		{
			"as the manual prints it", `{"context_length":null,"mem_fraction_static":0.836,"max_running_requests":128,"max_queued_requests":null,"max_total_tokens":20480,"chunked_prefill_size":8192,
			"max_prefill_tokens":16384,"schedule_policy":"fcfs","page_size":1,"tp_size":1,"disable_radix_cache":false,"status":"ready","max_total_num_tokens":20480,"max_req_input_len":20474}`,
			deploy.Config{BlockSize: 1, MaxNumSeqs: 128, ChunkedPrefill: new(true), PrefixCaching: new(true), MemFractionStatic: 0.836, TensorParallel: 1, SchedulingPolicy: "fcfs"},
			20480,
		},
		{"nothing", `{}`, deploy.Config{}, 0},
		{"other forms", `{"page_size":"large"}`, deploy.Config{}, 0},
		{"nonsense", `{"page_size":-3,"mem_fraction_static":7}`, deploy.Config{}, 0},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/server_info" {
				_, _ = w.Write([]byte(c.answer))
				return
			}
			_, _ = w.Write([]byte(`{"data":[{"id":"m","owned_by":"sglang"}]}`))
		}))
		got, err := load.About(t.Context(), load.Target{URL: s.URL})
		s.Close()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got.Settings); diff != "" || got.KVTokens != c.pool {
			t.Errorf("%s: %d tokens, (-want +got):\n%s", c.why, got.KVTokens, diff)
		}
	}
}

func TestAbout(t *testing.T) {
	for _, c := range []struct {
		why, owner, path, answer string
		engine                   load.Engine // what the target says
		want                     load.Engine
		version                  string
	}{
		{"vLLM", "vllm", "/version", `{"version":"0.32.0"}`, "", load.VLLM, "0.32.0"},
		{"SGLang among its settings", "sglang", "/server_info", `{"tp_size":1,"status":"ready","internal_states":[{"x":1}],"version":"0.5.12"}`, "", load.SGLang, "0.5.12"},
		{"an older SGLang", "sglang", "/get_server_info", `{"tp_size":1,"internal_states":[{"x":1}],"version":"0.5.10"}`, "", load.SGLang, "0.5.10"},
		{"llama-server", "llamacpp", "/props", `{"build_info":"b4567-abcdef"}`, "", load.LlamaCpp, "b4567-abcdef"},
		{"ollama", "library", "/api/version", `{"version":"0.9.1"}`, "", load.Ollama, "0.9.1"},
		{"a gateway that is named by hand", "somebody", "/version", `{"version":"0.31.0"}`, load.VLLM, load.VLLM, "0.31.0"},
		{"one that nobody knows is not asked", "somebody", "/version", `{"version":"7"}`, "", load.OpenAI, ""},
		{"no such page", "vllm", "/elsewhere", `{"version":"0.32.0"}`, "", load.VLLM, ""},
		{"no JSON", "vllm", "/version", `<html>`, "", load.VLLM, ""},
		{"no text", "vllm", "/version", `{"version":[0,32]}`, "", load.VLLM, ""},
		{"too long for a release", "vllm", "/version", `{"version":"` + strings.Repeat("9", 1000) + `"}`, "", load.VLLM, ""},
	} {
		t.Run(c.why, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Header.Get("X-Team") != "search" || r.Header.Get("Authorization") != "Bearer key":
					w.WriteHeader(http.StatusUnauthorized)
				case r.URL.Path == "/v1/models":
					_, _ = w.Write([]byte(`{"data":[{"id":"m","owned_by":"` + c.owner + `","max_model_len":99}]}`))
				case r.URL.Path == c.path:
					_, _ = w.Write([]byte(c.answer))
				default:
					http.NotFound(w, r)
				}
			}))
			defer s.Close()
			target := load.Target{URL: s.URL + "/v1", Engine: c.engine, APIKey: "key", Headers: map[string]string{"X-Team": "search"}}
			got, err := load.About(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			if got.Engine != c.want || got.Version != c.version || got.Model != "m" || got.MaxModelLen != 99 {
				t.Errorf("%+v: want %s %q", got, c.want, c.version)
			}
			target.Headers["Authorization"], target.APIKey = "Bearer key", "another"
			if _, err := load.About(t.Context(), target); err != nil {
				t.Errorf("its header in place of the key: %v", err)
			}
			target.Headers = nil
			if _, err := load.About(t.Context(), target); err == nil || !strings.Contains(err.Error(), "status 401") {
				t.Errorf("without its header: %v", err)
			}
		})
	}
}
