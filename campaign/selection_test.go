package campaign_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/llmprof/llmprof/campaign"
	"github.com/llmprof/llmprof/store"
)

func TestSelect(t *testing.T) {
	c := campaign.Defaults()
	c.DType = "float16"
	c.ModelID, c.Place, c.ContainerName = "meta-llama/Llama-3.1-8B", "docker:vllm", "vllm"
	c.InputLen, c.OutputLen, c.BatchSize = 4096, 256, 8
	for _, test := range []struct {
		expr string
		want bool
	}{
		{"", true},
		{"model=llama*", true},
		{"model=meta-llama/*8b", true},
		{"model=llama", false},
		{"model=*3.1*", true},
		{"model=*qwen*|*LLAMA*", true},
		{"batch=8", true},
		{"batch=1|8,input=4Ki", true},
		{"batch=1|8, input = 512", false},
		{"batch=*", true},
		{"input=4k|4Ki", true},
		{"input=40*", true},
		{"output=256,block=0,tp=1,pp=1,engine=vllm,container=vllm,place=docker:*,dtype=float16,quantization=*,kv=*,device=*", true},
		{"state=failed", false},
		{"state=pend*", true},
		{"state=failed|pending", true},
		{"hash=" + c.Hash()[:4] + "*", true},
		{"hash=zz*", false},
		{"model=l*3*b", true},
		{"model=l*4*b", false},
	} {
		f, err := campaign.Select(test.expr)
		if err != nil {
			t.Errorf("%s: %v", test.expr, err)
			continue
		}
		if got := f.Match(c, store.Pending); got != test.want {
			t.Errorf("%s: got %v", test.expr, got)
		}
	}
	c.ModelID = "/models/small/Qwen3-8B"
	for expr, want := range map[string]bool{"model=qwen3*": true, "model=small*": false, "model=/models/*": true, "model=qwen3-8b": true} {
		if f, err := campaign.Select(expr); err != nil || f.Match(c, store.Pending) != want {
			t.Errorf("%s of the folder %s: %v, want %v", expr, c.ModelID, err, want)
		}
	}
	for expr, says := range map[string]string{
		"batchs=8":          `unknown key "batchs"`,
		"batch":             `"batch" is not of the form key=value`,
		"batch=8,":          "not of the form",
		"batch=8,batch=1":   "batch stands twice",
		"batch=x":           "batch=x: want a number",
		"input=1|2.5":       "input=2.5: want a number",
		"tp=-1":             "tp=-1: want a number",
		"batch=":            "batch has an empty value",
		"batch=1||2":        "batch has an empty value",
		"state=dead":        `no state is called "dead": want one of pending, `,
		"model=a,,batch=12": "not of the form",
	} {
		_, err := campaign.Select(expr)
		var bad *campaign.SelectError
		if !errors.As(err, &bad) || bad.ExitCode() != 2 || !strings.Contains(err.Error(), says) || !strings.Contains(bad.Hint(), "batch, block, container") {
			t.Errorf("%s: got %v", expr, err)
		}
	}
}

func FuzzSelect(f *testing.F) {
	f.Add("model=llama*,batch=8,input=512|1024,state=failed,hash=ab12*")
	f.Add("state=**a*,kv=*")
	f.Fuzz(func(t *testing.T, expr string) {
		filter, err := campaign.Select(expr)
		if err == nil {
			filter.Match(campaign.Defaults(), store.Done)
		} else if err.Error() == "" {
			t.Fatal("an error without words")
		}
	})
}
