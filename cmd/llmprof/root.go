package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/llmprof/llmprof/report"
)

// The output formats.
const (
	formatTable    = "table"
	formatJSON     = "json"
	formatCSV      = "csv"
	formatMarkdown = "markdown"
	formatYAML     = "yaml"
)

// app is what every command shares: the streams and the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer

	format    string
	asJSON    bool
	quiet     bool
	verbose   bool
	logFormat string
	catalogs  []string
	// defaulted names the flags whose values come from the environment or
	// the configuration file.
	defaulted map[string]bool
}

// root builds the command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "llmprof",
		Short: "How fast, how big and how well configured is a language model?",
		Long: `llmprof tells how fast, how big and how well configured a large language model
is: it analyses any decoder on any accelerator from datasheet figures, imports
and checks measurements, trains predictors on them, and answers with an
interval and the basis of every number.

Start with:  llmprof quickstart`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       version(),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return a.prepare(cmd)
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetGlobalNormalizationFunc(normaliseFlag)
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.StringVarP(&a.format, "output", "o", formatTable, "output format: table, json, csv, markdown or yaml")
	flags.BoolVar(&a.asJSON, "json", false, "exactly one JSON document on stdout")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "no warnings, hints or progress on stderr")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "say more on stderr")
	flags.StringVar(&a.logFormat, "log-format", "text", "messages on stderr as text or json")
	flags.StringArrayVar(&a.catalogs, "catalog", nil, "YAML `file` with further models and devices (repeatable)")
	completeWith(root, "output", formatTable, formatJSON, formatCSV, formatMarkdown, formatYAML)
	completeWith(root, "log-format", "text", "json")
	root.AddCommand(
		a.quickstartCommand(),
		a.analyzeCommand(),
		a.modelsCommand(),
		a.gpusCommand(),
		a.doctorCommand(),
		a.profileCommand(),
		a.importCommand(),
		a.exportCommand(),
		a.lintCommand(),
		a.trainCommand(),
		a.predictCommand(),
		a.scoreCommand(),
		a.validateCommand(),
		a.runsCommand(),
		a.batchCommand(),
		a.benchCommand(),
		a.mockCommand(),
		a.workloadCommand(),
		a.simulateCommand(),
		a.compareCommand(),
	)
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Args = nil
			cmd.RunE = func(_ *cobra.Command, args []string) error {
				return usage("llmprof completion bash prints a script for bash", "completion wants one of bash, zsh, fish, powershell, and got %q", strings.Join(args, " "))
			}
		}
	}
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownCommand(root, strings.Join(args, " "))
			}
			return cmd.Help()
		},
	})
	return root
}

// prepare settles the global flags once they are parsed: environment and
// configuration file fill in what the command line left open.
func (a *app) prepare(cmd *cobra.Command) error {
	if name := cmd.Name(); name == "help" || name == "completion" || name == cobra.ShellCompRequestCmd || name == cobra.ShellCompNoDescRequestCmd || (cmd.HasParent() && cmd.Parent().Name() == "completion") {
		return nil
	}
	defaulted, err := applyDefaults(cmd.Flags(), flagNames(cmd.Root()), os.Environ(), configFile())
	if err != nil {
		return err
	}
	a.defaulted = defaulted
	if a.asJSON {
		a.format = formatJSON
	}
	known := []string{formatTable, formatJSON, formatCSV, formatMarkdown, formatYAML}
	if err := checkOutputName(cmd, append(known, "md", "text", "html")); err != nil {
		return err
	}
	if a.format == "md" {
		a.format = formatMarkdown
	}
	if !slices.Contains(known, a.format) {
		bad := a.format
		a.format = formatTable
		return usage("", "unknown output format %q: want one of %s", bad, strings.Join(known, ", "))
	}
	if a.logFormat != "text" && a.logFormat != "json" {
		return usage("", "unknown log format %q: want text or json", a.logFormat)
	}
	return nil
}

// checkOutputName refuses a bare name of a format where -o is a file or a folder
// to write: it is the format elsewhere, and one of that name is hardly meant.
func checkOutputName(cmd *cobra.Command, formats []string) error {
	f := cmd.Flags().Lookup("output")
	if f == nil || !f.Changed || f == cmd.Root().PersistentFlags().Lookup("output") || !slices.Contains(formats, f.Value.String()) {
		return nil
	}
	name, instead := f.Value.String(), "--json prints JSON"
	if cmd.Flags().Lookup("format") != nil {
		instead = "--format says the format"
	}
	return usage(fmt.Sprintf("%s; for that name write -o ./%s", instead, name), "-o %s: here -o names what to write, and %s is a format", name, name)
}

// flagNames lists the flags of a command and of all below it.
func flagNames(cmd *cobra.Command) []string {
	seen := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		note := func(f *pflag.Flag) { seen[f.Name] = true }
		c.Flags().VisitAll(note)
		c.PersistentFlags().VisitAll(note)
		for _, below := range c.Commands() {
			visit(below)
		}
	}
	visit(cmd)
	return slices.Sorted(maps.Keys(seen))
}

// log is the logger for messages on stderr.
func (a *app) log() *slog.Logger {
	level := slog.LevelInfo
	switch {
	case a.quiet:
		level = slog.LevelError
	case a.verbose:
		level = slog.LevelDebug
	}
	if a.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.stderr, &slog.HandlerOptions{Level: level}))
	}
	return slog.New(&plainHandler{w: a.stderr, level: level})
}

// warn prints warnings, each on a line.
func (a *app) warn(warnings ...string) {
	for _, w := range warnings {
		a.log().Warn(w)
	}
}

// write renders a document and its tables in the chosen format.
func (a *app) write(document any, tables ...report.Table) error {
	var err error
	switch a.format {
	case formatJSON:
		err = report.JSON(a.stdout, document)
	case formatYAML:
		err = report.YAML(a.stdout, document)
	case formatCSV:
		err = report.CSV(a.stdout, tables...)
	case formatMarkdown:
		err = report.Markdown(a.stdout, tables...)
	default:
		err = report.Text(a.stdout, tables...)
	}
	if err != nil {
		return &outputError{err}
	}
	return nil
}

// people reports whether the output is text for people.
func (a *app) people() bool { return a.format == formatTable }

// version is the module's version, or "devel" with the commit.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "devel"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			return "devel-" + s.Value[:12]
		}
	}
	return "devel"
}

// configDir is the user's configuration folder for llmprof; empty if there
// is no home.
func configDir() string {
	dir, err := os.UserConfigDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "llmprof")
}

// wantsJSON reports whether the arguments ask for JSON, as far as can be seen
// before they are parsed.
func wantsJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "--":
			return false
		case "--json", "--json=true", "-ojson", "-o=json", "--output=json":
			return true
		case "-o", "--output":
			if i+1 < len(args) && args[i+1] == formatJSON {
				return true
			}
		}
	}
	return false
}

// atLeastOne wants one argument or more.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usage(fmt.Sprintf("see %s --help", cmd.CommandPath()), "%s wants %s", cmd.Name(), what)
		}
		return nil
	}
}

// atMostOne wants one argument or none.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usage(fmt.Sprintf("see %s --help", cmd.CommandPath()), "%s wants at most %s, and got %s", cmd.Name(), what, strings.Join(args, " "))
		}
		return nil
	}
}

// noArgs wants no argument.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Sprintf("see %s --help", cmd.CommandPath()), "%s takes no arguments, and got %s", cmd.Name(), strings.Join(args, " "))
	}
	return nil
}

// completeWith offers fixed values for a flag.
func completeWith(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// unknownCommand names the nearest commands.
func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
			names = append(names, c.Aliases...)
		}
	}
	return usage(maybe(near(name, names), cmd), "unknown command %q", name)
}

// flagError names the nearest flags where one is unknown.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usage(fmt.Sprintf("see %s --help", cmd.CommandPath()), "--%s %q: %s", bad.GetFlag().Name, bad.GetValue(), wantedOf(bad))
	}
	name, ok := strings.CutPrefix(text, "unknown flag: --")
	if !ok {
		return usage(fmt.Sprintf("see %s --help", cmd.CommandPath()), "%s", text)
	}
	var names []string
	collect := func(f *pflag.Flag) { names = append(names, f.Name) }
	cmd.Flags().VisitAll(collect)
	cmd.InheritedFlags().VisitAll(collect)
	slices.Sort(names)
	names = slices.Compact(names)
	name, _, _ = strings.Cut(name, "=")
	if instead := foreignFlag(cmd.Name(), name); instead != "" {
		return usage(instead, "unknown flag --%s", name)
	}
	found := near(name, names)
	for i := range found {
		found[i] = "--" + found[i]
	}
	return usage(maybe(found, cmd), "unknown flag --%s", name)
}

// wantedOf says what a flag takes.
func wantedOf(bad *pflag.InvalidValueError) string {
	switch bad.GetFlag().Value.Type() {
	case "int", "int64":
		return "want a whole number"
	case "uint", "uint64":
		return "want a whole number that is not negative"
	case "float64":
		return "want a number"
	case "duration":
		return "want a time with its unit, such as 500ms, 30s or 5m"
	case "bool":
		return "want true or false"
	}
	return bad.Unwrap().Error()
}
