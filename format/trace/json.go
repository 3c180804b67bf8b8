package trace

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/settings"
	"github.com/llmprof/llmprof/unit"
	"github.com/llmprof/llmprof/workload"
)

// readJSON reads a JSON or JSON Lines file.
func (c *collector) readJSON(name string, text []byte, o Options) error {
	kind := JSONKind(text)
	if kind == "" {
		return &format.Error{File: name, Err: errors.New("no known trace: want JSON Lines with at_s, input and output, or with timestamp, input_length and output_length, the detailed JSON of vllm bench serve, a workload of LLMServingSim, or ShareGPT conversations")}
	}
	nodes, err := format.ParseJSON(name, text, o.Limits)
	if err != nil {
		return err
	}
	c.trace.Kind = kind
	if kind == VLLM {
		if len(nodes) != 1 {
			return nodes[1].Errorf("a second result: want one in a file")
		}
		return c.readServe(nodes[0])
	}
	rows := flatten(nodes)
	if kind == ShareGPT {
		return c.readConversations(rows, o)
	}
	if kind == LLMServingSim {
		return c.readLLMServingSim(rows)
	}
	if kind == Mooncake && !rows[0].Has("timestamp") {
		c.trace.Timed = false
		c.warn(rows[0].Errorf("no timestamp: lengths only"))
	}
	for _, row := range rows {
		q, due, err := c.row(kind, row, o)
		if err != nil {
			return err
		}
		if err := c.add(q, due, row.Errorf); err != nil {
			return err
		}
	}
	return nil
}

// JSONKind tells the kind of a JSON or JSON Lines text by the keys of its first
// object, for which its beginning is enough; it is empty for no known kind.
func JSONKind(text []byte) Kind {
	keys, _ := format.TopKeys(text)
	switch {
	case keys["input_length"] && keys["output_length"]:
		return Mooncake
	case (keys["at_s"] || keys["sent_s"]) && keys["input"] && keys["output"]:
		return OwnJSONL
	case keys["input_lens"] && keys["output_lens"]:
		return VLLM
	case keys["conversations"]:
		return ShareGPT
	case keys["input_toks"] && keys["output_toks"], keys["sub_requests"]:
		return LLMServingSim
	}
	return ""
}

// flatten lists the rows of a file, which stand one after the other or in one
// list, with the place of each.
func flatten(nodes []format.Node) []format.Node {
	if len(nodes) == 1 && nodes[0].Kind() == format.Array {
		rows := make([]format.Node, 0, nodes[0].Len())
		for _, row := range nodes[0].Elements() {
			rows = append(rows, row)
		}
		return rows
	}
	for i := range nodes {
		nodes[i] = nodes[i].At("line " + strconv.Itoa(nodes[i].Line()))
	}
	return nodes
}

// row reads one row of a kind, and when the request was due.
func (c *collector) row(kind Kind, row format.Node, o Options) (q workload.Request, due unit.Seconds, err error) {
	if row.Kind() != format.Object {
		return q, 0, row.Errorf("want an object, got %s", row.Got())
	}
	if kind == Mooncake {
		q, err = c.mooncake(row, o.BlockTokens)
		return q, q.At, err
	}
	return c.own(row)
}

// own reads a row of our own form.
func (c *collector) own(row format.Node) (q workload.Request, due unit.Seconds, err error) {
	if err := c.misspelt(row); err != nil {
		return q, 0, err
	}
	if q.InputLen, q.OutputLen, err = lengths(row.Get("input"), row.Get("output")); err != nil {
		return q, 0, err
	}
	if node := row.Get("priority"); node.Present() {
		if q.Priority, err = node.Int(-1<<31, 1<<31-1); err != nil {
			return q, 0, err
		}
	}
	for _, field := range []struct {
		key   string
		place *string
	}{{"id", &q.Name}, {"session", &q.Session}, {"class", &q.Class}} {
		if *field.place, err = label(row.Get(field.key)); err != nil {
			return q, 0, err
		}
	}
	if node := row.Get("timeout_s"); node.Present() {
		if q.Timeout, err = duration(node); err != nil {
			return q, 0, err
		}
	}
	if due, err = c.ownTime(row, &q); err != nil {
		return q, due, err
	}
	q.Prefix, err = ownPrefix(row, q.InputLen)
	return q, due, err
}

// misspelt looks for keys that hardly differ from one which a row lacks: where
// the row needs that one it is an error, else a warning.
func (c *collector) misspelt(row format.Node) error {
	known := []string{"id", "at_s", "sent_s", "input", "output", "session", "class", "timeout_s", "think_s", "priority", "shared", "group"}
	for key := range row.Members() {
		if slices.Contains(known, key) || c.unknown[key] {
			continue
		}
		meant := settings.Nearest(key, known)
		if row.Has(meant) || len(key) < 4 || settings.EditDistance(key, meant) > 2 {
			continue
		}
		if meant == "input" || meant == "output" {
			return row.Errorf("%q is no key of a row: nearest known is %q", key, meant)
		}
		c.unknown[key] = true
		c.warn(row.Errorf("%q is no key of a row and is passed over: nearest known is %q", key, meant))
	}
	return nil
}

// ownPrefix reads what a prompt has in common with those of its group.
func ownPrefix(row format.Node, input int) ([]workload.Span, error) {
	node := row.Get("shared")
	if !node.Present() {
		return nil, nil
	}
	shared, err := node.Int(0, input)
	if err != nil || shared == 0 {
		return nil, err
	}
	name, err := label(row.Get("group"))
	if err == nil && name == "" {
		err = node.Errorf("%d shared tokens without a group", shared)
	}
	return group(name, shared), err
}

// ownTime reads when a request came: at a time, or after the turn before it.
// The time due is that of the schedule.
func (c *collector) ownTime(row format.Node, q *workload.Request) (due unit.Seconds, err error) {
	at, sent := row.Get("at_s"), row.Get("sent_s")
	c.sent = c.sent || sent.Present()
	if last, began := c.turns[q.Session]; began && !at.Present() && !sent.Present() {
		c.waits = true
		q.After = &workload.Dependency{Request: last}
		if node := row.Get("think_s"); node.Present() {
			q.After.Think, err = duration(node)
		}
	} else if at.Present() || !sent.Present() {
		due, err = seconds(at, 1)
		q.At = due
	}
	if err == nil && c.sent && c.waits {
		err = row.Errorf("some turns have a time sent_s, and some none")
	}
	if err != nil || !sent.Present() {
		return due, err
	}
	if q.At, err = seconds(sent, 1); !at.Present() {
		due = q.At
	}
	return due, err
}

// duration reads a length of time in seconds.
func duration(node format.Node) (unit.Seconds, error) {
	return seconds(node, 1)
}

// mooncake reads a row with hash_ids.
func (c *collector) mooncake(row format.Node, block int) (q workload.Request, err error) {
	if c.trace.Timed {
		if q.At, err = seconds(row.Get("timestamp"), 1e3); err != nil {
			return q, err
		}
	}
	if q.InputLen, q.OutputLen, err = lengths(row.Get("input_length"), row.Get("output_length")); err != nil {
		return q, err
	}
	ids := row.Get("hash_ids")
	if ids.Present() && ids.Kind() != format.Array {
		return q, ids.Errorf("want a list of block ids, got %s", ids.Got())
	}
	if want := (q.InputLen + block - 1) / block; ids.Present() && ids.Len() != want {
		c.warnBlocks(row, want, ids.Len(), block)
	}
	left := q.InputLen
	for _, id := range ids.Elements() {
		n, err := id.Int(0, math.MaxInt32)
		if err != nil {
			return q, err
		}
		if left == 0 {
			break
		}
		name := strconv.Itoa(n)
		q.Prefix = append(q.Prefix, workload.Span{Seed: seedOf("block", name), Len: min(block, left)})
		left -= min(block, left)
	}
	return q, nil
}

// warnBlocks notes, once, that the blocks do not fit the prompt.
func (c *collector) warnBlocks(row format.Node, want, got, block int) {
	if !c.blocksWarned {
		c.blocksWarned = true
		c.warn(row.Errorf("%d hash_ids where blocks of %d tokens need %d: is the block length right? ids too many are not used, and what lies beyond the ids is taken as unshared", got, block, want))
	}
}

// readServe reads the detailed result of vllm bench serve.
func (c *collector) readServe(node format.Node) error {
	inputs, outputs, starts := node.Get("input_lens"), node.Get("output_lens"), node.Get("start_times")
	for _, list := range []format.Node{inputs, outputs} {
		if list.Kind() != format.Array {
			return list.Errorf("want a list, got %s: was the result saved with --save-detailed?", list.Got())
		}
	}
	if outputs.Len() != inputs.Len() {
		return outputs.Errorf("%d values, but %d input_lens", outputs.Len(), inputs.Len())
	}
	c.trace.Timed = starts.Kind() == format.Array
	if !c.trace.Timed {
		c.warn(node.Errorf("no start_times: lengths only"))
	} else if starts.Len() != inputs.Len() {
		return starts.Errorf("%d values, but %d input_lens", starts.Len(), inputs.Len())
	}
	column := func(list format.Node) []format.Node {
		out := make([]format.Node, 0, list.Len())
		for _, v := range list.Elements() {
			out = append(out, v)
		}
		return out
	}
	in, out, at := column(inputs), column(outputs), column(starts)
	for i := range in {
		var q workload.Request
		var err error
		if q.InputLen, q.OutputLen, err = lengths(in[i], out[i]); err != nil {
			return err
		}
		if c.trace.Timed {
			if q.At, err = seconds(at[i], 1); err != nil {
				return err
			}
		}
		if err := c.add(q, q.At, out[i].Errorf); err != nil {
			return err
		}
	}
	return nil
}

// readConversations reads ShareGPT conversations: the first two texts of each.
func (c *collector) readConversations(rows []format.Node, o Options) error {
	c.trace.Timed, c.trace.Estimated = false, true
	c.warn(&format.Error{File: c.trace.Name, Err: fmt.Errorf("lengths are estimated at %g characters a token, not counted by a tokenizer", o.CharsPerToken)})
	for _, row := range rows {
		talk := row.Get("conversations")
		if talk.Kind() != format.Array {
			return talk.Errorf("want a list of texts, got %s", talk.Got())
		}
		if talk.Len() < 2 {
			c.leaveOut("fewer than two texts", row.Errorf)
			continue
		}
		var tokens [2]int
		for i, part := range talk.Elements() {
			if i == len(tokens) {
				break
			}
			text, err := part.Get("value").Text()
			if err != nil {
				return err
			}
			tokens[i] = int(math.Ceil(float64(utf8.RuneCountInString(text)) / o.CharsPerToken))
			if tokens[i] > workload.MaxLen {
				return part.Errorf("a text of %d tokens: want at most %d", tokens[i], workload.MaxLen)
			}
		}
		if err := c.add(workload.Request{InputLen: tokens[0], OutputLen: tokens[1]}, 0, row.Errorf); err != nil {
			return err
		}
	}
	return nil
}

// seconds reads a time of which so many units make a second.
func seconds(node format.Node, perSecond float64) (unit.Seconds, error) {
	v, err := node.Float()
	if err != nil {
		return 0, err
	}
	at := unit.Seconds(v / perSecond)
	if err := checkTime(at); err != nil {
		return 0, node.Errorf("%w", err)
	}
	return at, nil
}

// lengths reads the lengths of a prompt and an answer.
func lengths(input, output format.Node) (in, out int, err error) {
	if in, err = input.Int(0, workload.MaxLen); err != nil {
		return 0, 0, err
	}
	out, err = output.Int(0, workload.MaxLen)
	return in, out, err
}

// label reads a name that may be absent or a number.
func label(node format.Node) (string, error) {
	if node.Kind() == format.Number {
		return node.Got(), nil
	}
	if !node.Present() {
		return "", nil
	}
	return node.Text()
}
