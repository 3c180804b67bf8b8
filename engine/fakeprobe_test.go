package engine_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeVariable makes this test program a probe that behaves as its value says.
const fakeVariable = "LLMPROF_FAKE_PROBE"

func TestMain(m *testing.M) {
	if behaviour := os.Getenv(fakeVariable); behaviour != "" {
		fakeProbe(behaviour)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// request is what the fake probe reads.
type request struct {
	Op        string `json:"op"`
	ID        int    `json:"id"`
	Model     string `json:"model"`
	BatchSize int    `json:"batch_size"`
	OutputLen int    `json:"output_len"`
	Tokens    int    `json:"tokens"`
	Runs      int    `json:"runs"`
}

const fakeReady = `{"event":"ready","schema":"llmprof/probe","version":1,"engine":"fake","engine_version":"1.2","clock":"wall","timer":"clock","timer_resolution_s":1e-9,"device":"Fake 9000","device_count":2,"dtype":"bf16","max_model_len":4096,"num_layers":12,"threads":4,"weights_bytes":1000,"libraries":{"torch":"2"},"memory":[{"part":"kv-cache","tokens":640,"block_size":16},{"part":""}],"warnings":["it is a fake"],"unknown":{"a":[1]}}`

// fakeProbe is a probe that answers rightly, but for what its behaviour says.
func fakeProbe(behaviour string) {
	say := func(format string, args ...any) { fmt.Fprintf(os.Stdout, format+"\n", args...) }
	hang := func() { time.Sleep(time.Hour) }
	die := func(status int, words string) {
		fmt.Fprintln(os.Stderr, words)
		os.Exit(status)
	}
	killed := func() {
		p, _ := os.FindProcess(os.Getpid())
		p.Kill()
		hang()
	}
	if behaviour == "ignores-close" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	}
	requests := bufio.NewScanner(os.Stdin)
	requests.Buffer(nil, 1<<20)
	for requests.Scan() {
		var r request
		if err := json.Unmarshal(requests.Bytes(), &r); err != nil {
			die(3, "bad request: "+err.Error())
		}
		switch r.Op {
		case "open":
			switch behaviour {
			case "hangs-at-start":
				hang()
			case "crashes-at-start":
				die(7, "Segfault in libfake.so")
			case "killed-at-start":
				killed()
			case "ends-at-start":
				say("I am off")
				os.Exit(0)
			case "not-found":
				die(127, "sh: fake: not found")
			case "not-executable":
				die(126, "sh: fake: Permission denied")
			case "wrong-version":
				say(strings.Replace(fakeReady, `"version":1`, `"version":2`, 1))
			case "wrong-schema":
				say(strings.Replace(fakeReady, "llmprof/probe", "other/probe", 1))
			case "unknown-clock":
				say(strings.Replace(fakeReady, `"wall"`, `"sundial"`, 1))
			case "answers-early":
				say(`{"event":"step","id":0,"prefill_s":[1]}`)
			case "chatters":
				say("Loading weights: 50%%\n\n{'a': dict}\n{\"no\": \"event\"}\n[1,2]\nnull\n{")
				say(`{"event":"progress","message":"half way","token":"hf_abcdefghijklmnopqrstuvwxyz"}`)
				say("token hf_abcdefghijklmnopqrstuvwxyz of user")
				fmt.Fprintln(os.Stderr, "warning on stderr")
				say(fakeReady)
			case "long-chatter":
				say(strings.Repeat("x", 300_000))
				say(fakeReady)
			case "leaks":
				// A long line whose cut would fall into the secret.
				say(strings.Repeat("x", 1990) + " " + os.Getenv("MY_SERVICE_TOKEN"))
				say("the token is %s", os.Getenv("MY_SERVICE_TOKEN"))
				fmt.Fprintln(os.Stderr, "on stderr:", os.Getenv("MY_SERVICE_TOKEN"))
				say(strings.Replace(fakeReady, "it is a fake", "it is "+os.Getenv("MY_SERVICE_TOKEN"), 1))
			case "leaks-and-dies":
				say(`{"event":"fatal","reason":"why","message":"%s"}`, os.Getenv("MY_SERVICE_TOKEN"))
				hang()
			default:
				if says, ok := strings.CutPrefix(behaviour, "says:"); ok {
					say(`{"event":"ready","schema":"llmprof/probe","version":1,"engine":"fake","engine_version":"1.2","clock":"wall","max_model_len":4096,%s}`, says)
					continue
				}
				if reason, ok := strings.CutPrefix(behaviour, "fatal:"); ok {
					say(`{"event":"fatal","reason":%q,"message":"no such thing"}`, reason)
					hang()
				}
				if behaviour == "fatal-hint" {
					say(`{"event":"fatal","reason":"engine-missing","message":"No module named 'torch'","hint":"pip install torch","engine":"torch"}`)
					os.Exit(1)
				}
				say(fakeReady)
			}
		case "step":
			fakeStep(behaviour, r, say, hang, die, killed)
		case "layers":
			samples := "[" + strings.TrimSuffix(strings.Repeat("0.5,", r.Runs), ",") + "]"
			warnings := "[]"
			if r.Tokens == 1 {
				warnings = `["blocks differ"]`
			}
			say(`{"event":"layers","id":%d,"warnings":%s,"layers":[{"name":"q_proj","samples_s":%s},{"name":"attn","samples_s":%s},{"name":"indexer","attention":true,"samples_s":%s},{"name":"lm_head","per_sequence":true,"samples_s":%s}]}`,
				r.ID, warnings, samples, samples, samples, samples)
		case "close":
			if behaviour == "ignores-close" {
				hang()
			}
			os.Exit(0)
		}
	}
	if behaviour == "ignores-close" {
		hang()
	}
}

// fakeStep answers a step; only batches of 2 or more show the behaviour.
func fakeStep(behaviour string, r request, say func(string, ...any), hang func(), die func(int, string), killed func()) {
	answer := func(id int, prefill, decode float64) {
		run := []float64{}
		for i := 1; i < r.OutputLen; i++ {
			run = append(run, decode*float64(i))
		}
		one, runs := []float64{}, [][]float64{}
		for i := range r.Runs {
			one = append(one, prefill+float64(i))
			runs = append(runs, run)
		}
		a, _ := json.Marshal(one)
		b, _ := json.Marshal(runs)
		say(`{"event":"step","id":%d,"prefill_s":%s,"decode_s":%s,"further":true}`, id, a, b)
	}
	if r.BatchSize < 2 {
		answer(r.ID, 1, 0.1)
		return
	}
	switch behaviour {
	case "leaks":
		if r.BatchSize == 2 {
			say(`{"event":"failed","id":%d,"reason":"exception","message":"%s"}`, r.ID, os.Getenv("MY_SERVICE_TOKEN"))
			return
		}
		say(`{"event":"step","id":%d,"prefill_s":[1,1],"decode_s":[[1,1,1],[1,1,1]],"warnings":["%s"]}`, r.ID, os.Getenv("MY_SERVICE_TOKEN"))
	case "hangs":
		hang()
	case "crashes":
		die(1, "RuntimeError: device-side assert")
	case "crashes-of-memory":
		die(1, "terminate called after throwing std::bad_alloc")
	case "killed":
		killed()
	case "exit-137":
		die(137, "Killed")
	case "ends":
		os.Exit(0)
	case "half-line":
		fmt.Print(`{"event":"step","id":2,"prefill_s":[1,`)
		os.Exit(0)
	case "garbage":
		say("\x00\xff\xfe garbage \x1b[31m")
		answer(r.ID, 1, 0.1)
	case "broken-event":
		say(`{"event":"step","id":2,"prefill_s":[1,}`)
		hang()
	case "wrong-type":
		say(`{"event":"step","id":"two","prefill_s":[1]}`)
		hang()
	case "long-line":
		say(`{"event":"step","id":2,"prefill_s":[` + strings.Repeat("1,", 200_000) + `1]}`)
		hang()
	case "wrong-id":
		answer(r.ID+40, 1, 0.1)
		hang()
	case "wrong-kind":
		say(`{"event":"layers","id":%d,"layers":[]}`, r.ID)
	case "nan":
		say(`{"event":"step","id":%d,"prefill_s":[NaN,1],"decode_s":[]}`, r.ID)
	case "infinite":
		say(`{"event":"step","id":%d,"prefill_s":[1,-Infinity],"decode_s":[]}`, r.ID)
	case "negative":
		answer(r.ID, -5, 0.1)
	case "few-samples":
		say(`{"event":"step","id":%d,"prefill_s":[1],"decode_s":[[1]]}`, r.ID)
	case "few-decode-steps":
		say(`{"event":"step","id":%d,"prefill_s":[1,1],"decode_s":[[1],[1]]}`, r.ID)
	case "fatal-in-task":
		say(`{"event":"fatal","reason":"oom","message":"HIP out of memory"}`)
		os.Exit(1)
	default:
		if reason, ok := strings.CutPrefix(behaviour, "failed:"); ok {
			say(`{"event":"failed","id":%d,"reason":%q,"message":"it says hf_abcdefghijklmnopqrstuvwxyz"}`, r.ID, reason)
			return
		}
		answer(r.ID, 1, 0.1)
	}
}
