package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/catalog"
	"github.com/llmprof/llmprof/format/requestlog"
	"github.com/llmprof/llmprof/profile"
	"github.com/llmprof/llmprof/report"
)

// importFlags are the flags of import.
type importFlags struct {
	out      string
	requests string
	kvTokens counts
	// model and gpu say what the files do not.
	model, gpu string
}

func (a *app) importCommand() *cobra.Command {
	f := &importFlags{kvTokens: newCount(1, 0)}
	cmd := &cobra.Command{
		Use:   "import FILE... -o X.llmprof",
		Short: "Turn other tools' measurements and server logs into a profile",
		Long: `Import reads measurements, tells by their content what they are, and writes
one profile: the artefact that every later command reads. Plain or gzip, it
knows

  - llmprof's own profiles, which it merges;
  - benchmark files of the forward-time predictor, in both key styles and as
    JSON Lines, and the results of sglang.bench_one_batch;
  - the log of a vLLM server that was started with
    --enable-logging-iteration-details: every step it ran, whatever it served,
    and the memory figures of its start. --requests adds what the clients saw;
  - layer CSVs of LLM-Profile and LLMServingSim, and its bundles (a folder);
  - runs of LLMServingSim's bench (a folder, or its requests.jsonl): the requests
    with the engine's own times; and its hardware.yaml, the times of collectives;
  - the output of llama-bench as JSON, JSON Lines or CSV;
  - results of vllm bench serve, sglang.bench_serving, guidellm, aiperf and
    inference-perf: their requests, and their figures in llmprof's words;
  - the start of an SGLang server's log (memory figures).`,
		Example: `  llmprof import benchmark_data_Qwen_Qwen3-4B_TP_1_PP_1.json -o qwen3-4b-a100.llmprof
  llmprof import server.log.gz --requests record.jsonl -o monday.llmprof
  llmprof import RTX3090/meta-llama/Llama-3.1-8B.csv -o layers.llmprof
  llmprof import monday.llmprof tuesday.llmprof -o both.llmprof.gz`,
		Args: atLeastOne("a file of measurements"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.importFiles(args, f)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.out, "output", "o", "", "profile to write; gzip if it ends in .gz, - for stdout")
	flags.StringVar(&f.requests, "requests", "", "what the clients of a server saw: JSON Lines with sent_s, first_s, last_s, input and output of each request")
	flags.Var(&f.kvTokens, "kv-tokens", "capacity of the server's KV cache in tokens, where its log does not say it")
	flags.StringVar(&f.model, "model", "", "the model, where the file does not say it")
	flags.StringVar(&f.gpu, "gpu", "", "the device, where the file does not say it")
	onlyOnCommandLine(flags, "output", "requests", "kv-tokens", "model", "gpu")
	_ = cmd.RegisterFlagCompletionFunc("gpu", a.completeDevices)
	return cmd
}

func (a *app) importFiles(files []string, f *importFlags) error {
	if f.out == "" {
		return usage("", "import wants a file to write: give -o X.llmprof")
	}
	cat, err := a.catalog()
	if err != nil {
		return err
	}
	var parts []*profile.Profile
	logs := false
	for _, name := range files {
		part, kind, err := a.readMeasurement(name, readOptions{cat: cat, kvTokens: int64(f.kvTokens.values[0])})
		if err != nil {
			return err
		}
		parts, logs = append(parts, part), logs || kind == serverLogKind
	}
	if !logs && (f.requests != "" || f.kvTokens.values[0] > 0) {
		return usage("", "--requests and --kv-tokens go with the log of a vLLM server, and none of the files is one")
	}
	p, err := merged(parts)
	if err != nil {
		return err
	}
	if err := f.complete(cat, p); err != nil {
		return err
	}
	if f.requests != "" {
		if len(files) > 1 {
			return usage("import each log with its own record, and then the profiles together", "--requests belongs to one log, and %d files are given", len(files))
		}
		points, err := a.readRequests(f.requests)
		if err != nil {
			return err
		}
		p.Points = append(p.Points, points...)
	}
	p.Header.Tool = version()
	if f.out == "-" {
		if a.format != formatTable {
			return usage("", "import -o - writes the profile to stdout, where a summary in %s has no place", a.format)
		}
		if err := p.Write("stdout", a.stdout); err != nil {
			return &outputError{err}
		}
		return nil
	}
	if err := writeFile(f.out, func(w io.Writer) error { return p.Write(f.out, w) }); err != nil {
		return err
	}
	document := report.Import(p, f.out, version())
	return a.write(document, report.ImportTables(document)...)
}

// complete records what the user knows and the files do not say.
func (f *importFlags) complete(cat *catalog.Catalog, p *profile.Profile) error {
	h := &p.Header
	switch {
	case f.model != "" && h.Deploy.Model != "" && h.Deploy.Model != f.model:
		return usage("", "--model is %s, and the file says %s", f.model, h.Deploy.Model)
	case f.model != "":
		h.Deploy.Model = f.model
	}
	if f.gpu == "" {
		return nil
	}
	device, _, err := cat.Device(f.gpu)
	if err != nil {
		return err
	}
	if h.Device.Name != "" && h.Device.Name != device.Name {
		return usage("", "--gpu is %s, and the file says %s", device.Name, h.Device.Name)
	}
	h.Device.Name = device.Name
	if h.Device.Reported == "" {
		h.Device.Reported = f.gpu
	}
	return nil
}

// readRequests reads what clients saw.
func (a *app) readRequests(name string) ([]profile.Point, error) {
	in, err := a.openInput(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }() // read only
	points, warnings, err := requestlog.Read(name, in)
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		a.warn(w.Error())
	}
	return points, nil
}
