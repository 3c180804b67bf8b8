package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/llmprof/llmprof/settings"
)

// near are the names that may have been meant: those that hardly differ in
// letters, share most of their words with it, or are a part of it or it of them;
// none where no name is near.
func near(name string, names []string) []string {
	words := func(text string) []string { return strings.Split(text, "-") }
	most, sharing := 1, []string(nil) // one word in common says little
	for _, known := range names {
		shared := 0
		for _, word := range words(name) {
			if slices.ContainsFunc(words(known), func(w string) bool { return strings.TrimSuffix(w, "s") == strings.TrimSuffix(word, "s") }) {
				shared++
			}
		}
		switch {
		case shared > most:
			most, sharing = shared, []string{known}
		case shared == most && shared > 1:
			sharing = append(sharing, known)
		}
	}
	closest := max(len(name)/3, min(len(name)/2, 2)) // two letters that changed places count as two
	var spelt []string
	for _, known := range names {
		switch d := settings.EditDistance(name, known); {
		case d < closest:
			closest, spelt = d, []string{known}
		case d == closest:
			spelt = append(spelt, known)
		}
	}
	found := sharing
	if len(spelt) > 0 {
		found = spelt
	}
	if len(found) == 0 {
		for _, known := range names {
			if strings.HasPrefix(known, name+"-") || strings.HasSuffix(name, "-"+known) {
				found = append(found, known)
			}
		}
	}
	return found[:min(len(found), 3)]
}

// maybe asks for one of the names, if there are any, and names the help.
func maybe(names []string, cmd *cobra.Command) string {
	if len(names) == 0 {
		return "see " + cmd.CommandPath() + " --help"
	}
	return "did you mean " + strings.Join(names, ", ") + "? See " + cmd.CommandPath() + " --help"
}

// strayHelp refuses the help of a word that is no command: "llmprof foo --help"
// would print that of llmprof.
func strayHelp(root *cobra.Command, args []string) error {
	cmd, rest, _ := root.Find(args) // what it does not find, it says when it runs
	if cmd == nil || !cmd.HasSubCommands() || !slices.ContainsFunc(rest, func(arg string) bool { return arg == "--help" || arg == "-h" }) {
		return nil
	}
	for i := 0; i < len(rest) && rest[i] != "--"; i++ {
		arg := rest[i]
		if !strings.HasPrefix(arg, "-") {
			return unknownCommand(cmd, arg)
		}
		name, _, valued := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		flag := cmd.Flags().Lookup(name)
		if flag == nil {
			flag = cmd.InheritedFlags().Lookup(name)
		}
		if flag == nil && len(name) == 1 {
			flag = root.PersistentFlags().ShorthandLookup(name)
		}
		if flag != nil && flag.NoOptDefVal == "" && !valued {
			i++ // its value
		}
	}
	return nil
}
