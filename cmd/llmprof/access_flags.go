package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/load"
)

// accessFlags say how a server is reached: as whom one comes, whom one trusts,
// and what kind of server it is. Commands that ask a live server have the same.
type accessFlags struct {
	kind              string
	headers           []string
	caFile            string
	certFile, keyFile string
	insecure          bool
}

func (f *accessFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kind, "backend", "", "what the server is: openai, vllm, sglang, llamacpp, ollama (default: found out)")
	flags.StringArrayVar(&f.headers, "header", nil, "further `NAME=VALUE` with every request (repeatable)")
	flags.StringVar(&f.caFile, "tls-ca", "", "PEM `file` of certificates to trust")
	flags.StringVar(&f.certFile, "tls-cert", "", "PEM `file` of the client's certificate")
	flags.StringVar(&f.keyFile, "tls-key", "", "PEM `file` of its key")
	flags.BoolVar(&f.insecure, "insecure", false, "trust any certificate")
	completeWith(cmd, "backend", "openai", "vllm", "sglang", "llamacpp", "ollama")
	onlyOnCommandLine(flags, "backend")
}

// accessNames are the flags.
func accessNames() []string {
	return []string{"backend", "header", "tls-ca", "tls-cert", "tls-key", "insecure"}
}

// backends are the names of servers, those of other tools among them.
func backends() map[string]load.Engine {
	return map[string]load.Engine{
		"": "", "openai": load.OpenAI, "openai-chat": load.OpenAI, "vllm": load.VLLM, "sglang": load.SGLang,
		"llamacpp": load.LlamaCpp, "llama.cpp": load.LlamaCpp, "llama-server": load.LlamaCpp, "ollama": load.Ollama,
	}
}

// reach fills in how a target is reached.
func (f *accessFlags) reach(t *load.Target) error {
	kind, ok := backends()[f.kind]
	if !ok {
		return usage("", "unknown --backend %q: want openai, vllm, sglang, llamacpp or ollama", f.kind)
	}
	if (f.certFile == "") != (f.keyFile == "") {
		return usage("", "--tls-cert and --tls-key go together: one is missing")
	}
	t.Engine, t.APIKey = kind, os.Getenv("OPENAI_API_KEY")
	t.TLS = load.TLS{CAFile: f.caFile, Insecure: f.insecure, CertFile: f.certFile, KeyFile: f.keyFile}
	for _, pair := range f.headers {
		// curl's form is taken too; neither sign can be in a name.
		at := strings.IndexAny(pair, "=:")
		if at < 0 {
			at = len(pair)
		}
		if at == 0 || at == len(pair) {
			return usage("for example --header X-Team=search", "--header %q: want NAME=VALUE", pair[:at])
		}
		if t.Headers == nil {
			t.Headers = map[string]string{}
		}
		t.Headers[strings.TrimSpace(pair[:at])] = strings.TrimSpace(pair[at+1:])
	}
	return nil
}

// checkTLS refuses flags about certificates that are given for addresses none
// of which is https.
func checkTLS(urls []string, given func(string) bool) error {
	if slices.ContainsFunc(urls, func(url string) bool { return strings.HasPrefix(strings.ToLower(url), "https://") }) {
		return nil
	}
	names := []string{"tls-ca", "tls-cert", "tls-key", "insecure"}
	if i := slices.IndexFunc(names, given); i >= 0 {
		return usage("leave out --"+names[i]+", or write https:// before the address", "--%s has no use without an https URL", names[i])
	}
	return nil
}
