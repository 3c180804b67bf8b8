package place

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strings"
)

// variableName is what a shell takes as the name of a variable.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// quote makes one word of a POSIX shell of any text without a zero byte.
func quote(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// quoteAll quotes words and joins them.
func quoteAll(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = quote(word)
	}
	return strings.Join(quoted, " ")
}

// newMark returns a word that nothing else says: scripts end with it on their
// way in and announce themselves with it on their way out.
func newMark() string {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	return "llmprof-" + hex.EncodeToString(random[:])
}

// bootstrap is the script that every remote shell is started with: it reads
// another script from stdin, up to a line that is the mark, and runs it. What
// follows on stdin is left for that script, since a shell's read takes no byte
// too many. So no argument, variable or secret stands in a command line, and
// nothing has to be quoted for whatever login shell is in between: the text
// holds no quote, line break, backslash before a quote or exclamation mark.
func bootstrap(mark string) string {
	return `p=; n=$(printf "\nx"); n=${n%x}; ` +
		`while IFS= read -r l; do case $l in ` + mark + `) break;; esac; p=$p$l$n; done; eval "$p"`
}

// programScript is the script that runs a command. It says on stdout which
// process group to end, or why it starts nothing, before the program says
// anything.
//
// The shell stays and waits for the program, because ssh does not tell by what
// signal one ended and a shell does. It has to lead its process group, as it
// does wherever a daemon has started it; setsid helps where it does not.
func programScript(mark string, argv, env []string, dir string) string {
	var s strings.Builder
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		s.WriteString("export " + name + "=" + quote(value) + "\n")
	}
	if dir != "" {
		s.WriteString("cd " + quote(dir) + " 2>/dev/null || { echo " + mark + " folder; exit 1; }\n")
	}
	program := quote(argv[0])
	found := "command -v " + program + " >/dev/null 2>&1"
	if strings.Contains(argv[0], "/") {
		found = "[ -f " + program + " ] && [ -x " + program + " ]"
	}
	s.WriteString(found + " || { if [ -f " + program + " ]; then echo " + mark + " denied; else echo " + mark + " missing; fi; exit 127; }\n")
	s.WriteString("q=" + quote("echo "+mark+" group $$; trap : HUP INT TERM; "+quoteAll(argv)+"; exit $?") + "\n")
	s.WriteString(`g=$$
if [ -r /proc/$$/stat ]; then read -r s </proc/$$/stat; s=${s##*) }; set -- $s; g=$3
elif command -v ps >/dev/null 2>&1; then g=$(ps -o pgid= -p $$ | tr -d " "); fi
if [ "$g" = $$ ]; then set --; eval "$q"
elif command -v setsid >/dev/null 2>&1; then exec setsid sh -c "$q"
else echo ` + mark + ` process $$; exec ` + quoteAll(argv) + `; fi
`)
	return s.String()
}

// remoteGuardScript watches over the process group of a program from a second
// connection, which tells it what to do: TERM and KILL are sent on, "done" ends
// in good time what the program has left behind, and then the guard itself.
// When the connection breaks, as it does when this program dies, the group is
// ended; so is what is left of it when its leader has gone. Processes that have ended and wait to be asked for their
// status do not count: in a container nobody may ever ask.
func remoteGuardScript(mark, leader string, group bool) string {
	target, idle := "-"+leader, `
cat /proc/[0-9]*/stat 2>/dev/null | grep -qE "\) [^ZX] [0-9]+ `+leader+` "
[ $? != 1 ]`
	if !group {
		target, idle = leader, ""
	}
	return `trap "" HUP INT TERM PIPE
nap() { sleep 0.2 2>/dev/null || sleep 1; }
left() {
kill -0 ` + target + ` 2>/dev/null || return 1
[ -r /proc/$$/stat ] || return 0` + idle + `
}
gone() { for k in 1 2 3 4 5 6 7 8 9 10; do left || return 0; nap; done; return 1; }
end() { kill -TERM ` + target + ` 2>/dev/null; gone || kill -KILL ` + target + ` 2>/dev/null; }
(while kill -0 ` + leader + ` && sleep 2; do :; done; end) </dev/null >/dev/null 2>&1 &
w=$!; d=
echo ` + mark + ` guard
while read -r l; do case $l in
TERM|KILL) kill -$l ` + target + ` 2>/dev/null;;
done) kill -KILL $w; (gone || end; kill -KILL $$) & d=$!;;
esac; done
if [ "$d" ]; then wait $d; else kill -KILL $w; end; fi
`
}

// copyInScript writes stdin to a file, whole or not at all, and says how many
// bytes came.
func copyInScript(mark, path string, mode uint32) string {
	return `umask 077; f=` + quote(notAnOption(path)) + `; t=$f.llmprof.$$
echo ` + mark + ` ready
cat >"$t" && chmod ` + octal(mode) + ` "$t" && n=$(wc -c <"$t") && mv -f "$t" "$f" && echo ` + mark + ` copied $n && exit 0
s=$?; rm -f "$t"; exit $s
`
}

// copyOutScript says whether there is a file and how long it is, and prints it.
func copyOutScript(mark, path string) string {
	return `f=` + quote(notAnOption(path)) + `
if [ ! -e "$f" ]; then echo ` + mark + ` none
elif [ -d "$f" ]; then echo ` + mark + ` folder
elif [ ! -r "$f" ]; then echo ` + mark + ` denied
else n=0; [ -f "$f" ] && n=$(wc -c <"$f"); echo ` + mark + ` file $n; exec cat "$f"; fi
`
}

// tempDirScript makes a folder and names it.
func tempDirScript(mark string) string {
	return `umask 077; d=$(mktemp -d "${TMPDIR:-/tmp}/llmprof.XXXXXX") && echo ` + mark + ` folder "$d"
`
}

// notAnOption keeps programs from taking a path for an option.
func notAnOption(path string) string {
	if strings.HasPrefix(path, "-") {
		return "./" + path
	}
	return path
}

// octal writes permission bits for chmod.
func octal(mode uint32) string {
	const digits = "01234567"
	return string([]byte{'0', digits[mode>>6&7], digits[mode>>3&7], digits[mode&7]})
}
