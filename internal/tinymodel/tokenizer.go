package tinymodel

import (
	"strconv"
	"strings"
)

// The vocabulary: one token a byte, pairs of characters, five control tokens,
// and names for what is beyond.
const (
	byteTokens = 256
	pairTokens = 251
	baseVocab  = byteTokens + pairTokens + 5
)

// The control tokens.
const (
	beginID     = byteTokens + pairTokens + iota // before every prompt
	endID                                        // after every reply
	padID                                        // fills batches up
	turnBeginID                                  // before a chat message
	turnEndID                                    // after it

	beginToken     = "<|begin|>"
	endToken       = "<|end|>"
	padToken       = "<|pad|>"
	turnBeginToken = "<|im_start|>"
	turnEndToken   = "<|im_end|>"
)

// chatTemplate writes each message as <|im_start|>role, text, <|im_end|>.
const chatTemplate = "{% for message in messages %}{{ '" + turnBeginToken + "' + message['role'] + '\n' + message['content'] + '" + turnEndToken + "' + '\n' }}{% endfor %}" +
	"{% if add_generation_prompt %}{{ '" + turnBeginToken + "assistant\n' }}{% endif %}"

// byteRune is the printable character that stands for a byte in a byte-level
// BPE: itself where it is one, else the next free one from U+0100 on.
func byteRune(b byte) rune {
	free := rune(0x100)
	for i := range rune(256) {
		visible := i >= '!' && i <= '~' || i >= 0xa1 && i <= 0xac || i >= 0xae && i <= 0xff
		switch {
		case i == rune(b) && visible:
			return i
		case i == rune(b):
			return free
		case !visible:
			free++
		}
	}
	return free
}

// pairs are the merges in order: a space and a letter, then pairs of frequent
// letters, the most frequent first.
func pairs() [][2]string {
	space := string(byteRune(' '))
	var list [][2]string
	for c := 'a'; c <= 'z'; c++ {
		list = append(list, [2]string{space, string(c)})
	}
	for c := 'A'; c <= 'Z'; c++ {
		list = append(list, [2]string{space, string(c)})
	}
	const letters = "etaoinshrdlucmfwypv"
	for sum := 0; len(list) < pairTokens; sum++ {
		for i := range letters {
			if j := sum - i; j >= 0 && j < len(letters) && len(list) < pairTokens {
				list = append(list, [2]string{letters[i : i+1], letters[j : j+1]})
			}
		}
	}
	return list
}

// vocabulary lists n tokens by id.
func vocabulary(n int) []string {
	list := make([]string, 0, n)
	for b := range byteTokens {
		list = append(list, string(byteRune(byte(b))))
	}
	for _, p := range pairs() {
		list = append(list, p[0]+p[1])
	}
	list = append(list, controls()...)
	for id := len(list); id < n; id++ {
		list = append(list, "<|unused_"+strconv.Itoa(id)+"|>")
	}
	return list
}

// controls are the control tokens from beginID on.
func controls() []string {
	return []string{beginToken, endToken, padToken, turnBeginToken, turnEndToken}
}

// merges are the merges as tokenizer files write them: "a b".
func merges() []string {
	var list []string
	for _, p := range pairs() {
		list = append(list, strings.Join(p[:], " "))
	}
	return list
}

// allowed reports whether the model may produce a token: printable ASCII only.
func allowed(id int) bool {
	return id >= ' ' && id <= '~' || id >= byteTokens && id < beginID
}
