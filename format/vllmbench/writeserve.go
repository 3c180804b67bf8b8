package vllmbench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/llmprof/llmprof/format"
	"github.com/llmprof/llmprof/unit"
)

// WriteServe writes a result as "vllm bench serve --save-result" does, with
// its keys in its order: summaries in milliseconds, arrays in seconds, an
// unlimited rate as "inf". What is nil is null, a list that is nil is left
// out. [ReadServe] reads an equal result back.
func WriteServe(w io.Writer, s *Serve) error {
	o := &object{extra: s.Extra, seen: map[string]bool{}}
	o.add("date", optional(s.Date))
	o.add("endpoint_type", optional(s.EndpointType))
	o.add("backend", optional(s.Backend))
	o.add("label", optional(s.Label))
	o.add("model_id", optional(s.ModelID))
	o.add("tokenizer_id", optional(s.TokenizerID))
	o.add("num_prompts", s.NumPrompts)
	o.addExtra(func(key string) bool { return !strings.HasPrefix(key, "ramp_up_") && key != goodputKey })
	if s.Unlimited {
		o.add("request_rate", "inf")
	} else {
		o.add("request_rate", s.RequestRate)
	}
	o.add("burstiness", s.Burstiness)
	o.add("max_concurrency", s.MaxConcurrency)
	o.addExtra(func(key string) bool { return key != goodputKey })
	o.add("duration", s.Duration)
	o.add("completed", s.Completed)
	o.add("failed", s.Failed)
	o.add("total_input_tokens", s.InputTokens)
	o.add("total_output_tokens", s.OutputTokens)
	o.add("request_throughput", s.RequestThroughput)
	if goodputs, ok := s.Extra[goodputKey]; ok {
		o.add(goodputKey, goodputs)
	} else {
		o.add(goodputKey, s.Goodput)
	}
	o.add("output_throughput", s.OutputThroughput)
	o.add("total_token_throughput", s.TotalThroughput)
	o.addDetails(s.Details)
	o.add("max_output_tokens_per_s", s.PeakOutputThroughput)
	o.add("max_concurrent_requests", s.MaxConcurrentRequests)
	o.add("rtfx", s.RTFx)
	o.addSpeculation(s.Speculation)
	for i := range s.Statistics {
		o.addStatistic(&s.Statistics[i])
	}
	if o.err != nil {
		return fmt.Errorf("write a result of vllm bench serve: %w", o.err)
	}
	o.text.WriteString("}\n")
	_, err := w.Write(o.text.Bytes())
	return err
}

// goodputKey is the one key that holds a number or an object.
const goodputKey = "request_goodput"

// optional is a text, or null where there is none.
func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// object writes keys in the order in which they are added. The first fault
// stops it.
type object struct {
	text  bytes.Buffer
	extra map[string]json.RawMessage
	seen  map[string]bool
	err   error
}

// add writes a key; a nil pointer is null.
func (o *object) add(key string, value any) {
	if o.err != nil {
		return
	}
	if o.seen[key] {
		o.err = fmt.Errorf("key %q stands twice", key)
		return
	}
	o.seen[key] = true
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := errorAt(key, encoder.Encode(key), encoder.Encode(value)); err != nil {
		o.err = err
		return
	}
	name, rest, _ := bytes.Cut(text.Bytes(), []byte{'\n'})
	if o.text.Len() == 0 {
		o.text.WriteByte('{')
	} else {
		o.text.WriteString(", ")
	}
	o.text.Write(name)
	o.text.WriteString(": ")
	o.text.Write(bytes.TrimSpace(rest))
}

// errorAt is the first error, with the key.
func errorAt(key string, errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// addExtra writes the foreign keys that are wanted and not yet written.
func (o *object) addExtra(wanted func(key string) bool) {
	for _, key := range slices.Sorted(maps.Keys(o.extra)) {
		if wanted(key) && !o.seen[key] {
			o.add(key, o.extra[key])
		}
	}
}

// addDetails writes the lists that are there.
func (o *object) addDetails(d *Details) {
	if d == nil {
		return
	}
	addList(o, "input_lens", d.InputLens)
	addList(o, "output_lens", d.OutputLens)
	addList(o, "ttfts", d.TTFTs)
	if d.ITLs != nil {
		// A request without gaps has an empty list, not null.
		lists := slices.Clone(d.ITLs)
		for i, gaps := range lists {
			if gaps == nil {
				lists[i] = []float64{}
			}
		}
		o.add("itls", lists)
	}
	addList(o, "latencies", d.Latencies)
	addList(o, "start_times", d.StartTimes)
	addList(o, "queue_times", d.QueueTimes)
	addList(o, "generated_texts", d.Texts)
	addList(o, "errors", d.Errors)
}

func addList[T any](o *object, key string, list []T) {
	if list != nil {
		o.add(key, list)
	}
}

func (o *object) addSpeculation(s *Speculation) {
	if s == nil {
		return
	}
	const prefix = "spec_decode_"
	o.add(prefix+"acceptance_rate", s.AcceptanceRate)
	o.add(prefix+"acceptance_length", s.AcceptanceLength)
	o.add(prefix+"num_drafts", s.Drafts)
	o.add(prefix+"draft_tokens", s.DraftTokens)
	o.add(prefix+"accepted_tokens", s.AcceptedTokens)
	addList(o, prefix+"per_position_acceptance_rates", s.PerPosition)
}

// addStatistic writes one latency in milliseconds. The decimal point is moved
// in the text, as it is in reading.
func (o *object) addStatistic(s *Statistic) {
	add := func(part string, seconds *float64) {
		if seconds == nil {
			return
		}
		key := part + "_" + s.Metric + "_ms"
		if !momentKey.MatchString(key) && !percentileKey.MatchString(key) {
			o.err = fmt.Errorf("%q names no metric", s.Metric)
			return
		}
		o.add(key, json.RawMessage(format.TimeText(unit.Seconds(*seconds), format.Milliseconds)))
	}
	add("mean", s.Mean)
	add("median", s.Median)
	add("std", s.Deviation)
	for i := range s.Percentiles {
		p := &s.Percentiles[i]
		add("p"+strconv.FormatFloat(p.Percent, 'f', -1, 64), &p.Seconds)
	}
}
