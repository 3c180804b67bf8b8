package tinymodel_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/llmprof/llmprof/internal/enginetest"
	"github.com/llmprof/llmprof/internal/tinymodel"
)

// TestTransformers loads the folder as vLLM does: AutoTokenizer, AutoConfig,
// and the weights into the model class.
func TestRealTransformers(t *testing.T) {
	python := enginetest.Python(t)
	dir := t.TempDir()
	shape := tinymodel.Tiny()
	if err := tinymodel.WriteFolder(dir, shape); err != nil {
		t.Fatal(err)
	}
	weights, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	if err := tinymodel.WriteSafetensors(weights, shape, 1); err != nil {
		t.Fatal(err)
	}
	if err := weights.Close(); err != nil {
		t.Fatal(err)
	}
	const script = `
import json, sys, torch
torch.set_num_threads(1)
from transformers import AutoTokenizer, LlamaForCausalLM
t = AutoTokenizer.from_pretrained(sys.argv[1])
m, loading = LlamaForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32, output_loading_info=True)
text = "the 0123456789#$%&*+=<>?@ Größe\n"
ids = t.encode("0123456789")
out = m.generate(torch.tensor([ids]), max_new_tokens=64, do_sample=True, temperature=1.0)
reply = out[0, len(ids):].tolist()
print(json.dumps({
    "vocab": len(t), "max_id": max(t.get_vocab().values()), "ids": ids,
    "back": t.decode(t.encode(text, add_special_tokens=False)) == text,
    "chat": t.apply_chat_template([{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True),
    "special": [t.bos_token_id, t.eos_token_id, t.pad_token_id, t.convert_tokens_to_ids("<|im_start|>")],
    "params": m.num_parameters(), "missing": sorted(loading["missing_keys"]), "unexpected": sorted(loading["unexpected_keys"]),
    "reply": len(reply), "reply_text": t.decode(reply),
}))`
	cmd := exec.Command(python, "-c", script, dir)
	cmd.Env = append(os.Environ(), "HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "OMP_NUM_THREADS=1")
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	var got struct {
		Vocab      int      `json:"vocab"`
		MaxID      int      `json:"max_id"`
		IDs        []int    `json:"ids"`
		Back       bool     `json:"back"`
		Chat       string   `json:"chat"`
		Special    []int    `json:"special"`
		Params     int64    `json:"params"`
		Missing    []string `json:"missing"`
		Unexpected []string `json:"unexpected"`
		Reply      int      `json:"reply"`
		ReplyText  string   `json:"reply_text"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Vocab != 512 || got.MaxID != 511 || len(got.IDs) != 11 || got.IDs[0] != 507 || got.IDs[1] != '0' {
		t.Errorf("vocabulary %d up to %d, ten digits are %v", got.Vocab, got.MaxID, got.IDs)
	}
	if !got.Back {
		t.Error("text does not come back from its tokens")
	}
	if want := "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"; got.Chat != want {
		t.Errorf("chat text %q, want %q", got.Chat, want)
	}
	if len(got.Special) != 4 || got.Special[0] != 507 || got.Special[1] != 508 || got.Special[2] != 509 || got.Special[3] != 510 {
		t.Errorf("special tokens %v", got.Special)
	}
	if got.Params != shape.Params() || len(got.Missing)+len(got.Unexpected) > 0 {
		t.Errorf("%d parameters, missing %q, unexpected %q", got.Params, got.Missing, got.Unexpected)
	}
	if got.Reply != 64 {
		t.Errorf("%d tokens of 64", got.Reply)
	}
	for _, r := range got.ReplyText {
		if r < ' ' || r > '~' {
			t.Errorf("reply %q is not printable ASCII", got.ReplyText)
			break
		}
	}
}

// TestNodeLlamaCpp loads the GGUF file into llama.cpp.
func TestRealNodeLlamaCpp(t *testing.T) {
	folder := enginetest.NodeLlamaCpp(t)
	model := filepath.Join(t.TempDir(), "tiny.gguf")
	file, err := os.Create(model)
	if err != nil {
		t.Fatal(err)
	}
	if err := tinymodel.WriteGGUF(file, tinymodel.Tiny(), 1); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	const script = `
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";
const module = createRequire(process.env.ENGINE + "/package.json").resolve("node-llama-cpp");
const {getLlama} = await import(pathToFileURL(module));
const llama = await getLlama({build: "never", gpu: false, maxThreads: 1, logLevel: "error"});
const model = await llama.loadModel({modelPath: process.env.MODEL, gpuLayers: 0});
const context = await model.createContext({contextSize: 512, sequences: 1, threads: 1});
const sequence = context.getSequence();
const digits = model.tokenize("0123456789");
const reply = [];
for await (const token of sequence.evaluate([model.tokens.bos, ...digits], {temperature: 1, seed: 5, yieldEogToken: true})) {
    reply.push(token);
    if (reply.length === 64) break;
}
console.log(JSON.stringify({
    vocab: model.fileInfo.metadata.llama.vocab_size, bos: model.tokens.bos, eos: model.tokens.eos, eot: model.tokens.eot ?? -1,
    digits, reply: reply.length, text: model.detokenize(reply), size: model.size,
    begins: model.tokens.shouldPrependBosToken, template: model.fileInfo.metadata.tokenizer.chat_template.length > 0,
}));
process.exit(0);`
	// The engine starts children with the same arguments, so that the script
	// must be a file.
	program := filepath.Join(t.TempDir(), "generate.mjs")
	if err := os.WriteFile(program, []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", program)
	cmd.Env = append(os.Environ(), "MODEL="+model, "ENGINE="+folder)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	var got struct {
		BOS      int    `json:"bos"`
		EOS      int    `json:"eos"`
		Digits   []int  `json:"digits"`
		Reply    int    `json:"reply"`
		Text     string `json:"text"`
		Begins   bool   `json:"begins"`
		Template bool   `json:"template"`
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.BOS != 507 || got.EOS != 508 || len(got.Digits) != 10 || got.Digits[9] != '9' || !got.Begins || !got.Template {
		t.Errorf("tokenizer: %+v", got)
	}
	if got.Reply != 64 {
		t.Errorf("%d tokens of 64", got.Reply)
	}
	for _, r := range got.Text {
		if r < ' ' || r > '~' {
			t.Errorf("reply %q is not printable ASCII", got.Text)
			break
		}
	}
}
