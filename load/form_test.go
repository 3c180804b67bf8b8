package load

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// checkForm reads events one after the other and wants each to be read as if
// none had come before.
func checkForm(t testing.TB, events [][]byte) (fitted int) {
	t.Helper()
	var f form
	for i, event := range events {
		if f.fits(event) > 0 {
			fitted++
		}
		got, gotErr := f.parse(event)
		want, wantErr := parsePiece(event)
		got.words, want.words = nil, nil // those of the event that the form was made from
		if (gotErr == nil) != (wantErr == nil) || gotErr == nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("event %d, %q: %+v, %v; want %+v, %v", i, event, got, gotErr, want, wantErr)
		}
	}
	return fitted
}

func TestFormReadsWhatTheScannerReads(t *testing.T) {
	shapes := []string{
		`{"id":"a","choices":[{"index":0,"text":T,"logprobs":null,"finish_reason":null}],"usage":null}`,
		`{"id":"a","choices":[{"index":0,"text":T,"finish_reason":"length"}]}`,
		`{"choices":[{"delta":{"content":T}}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`,
		`{"choices":[{"delta":{"reasoning_content":T,"content":"b"}}]}`,
		`{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":T}}]}}]}`,
		`{"choices":[{"text":T,"token_ids":[1,2]},{"text":T}]}`,
		`{"choices":[{"logprobs":{"tokens":[T]},"text":T}],"error":T}`,
		`{"choices":[{"text":T,"finish_reason":null}],"usage":{"prompt_tokens":3,"completion_tokens":N},"created":N}`,
		`{"choices":[{"text":T}],"choices":[{"text":T,"token_ids":[1]}],"error":N}`,
		`{"object":T,"choices":[{"text":"a"}]}`, `{"choices":[{"text":T}] N}`, `{"choices":[{"text":T`, `T`,
	}
	texts := []string{`ab"`, `"a"`, `"word "`, `""`, `"\""`, `"\\"`, `"\\\""`, `"a","finish_reason":"stop"`, `"`, `a`, `"a" `, `null`, `{"a":"b"}`, `"\u00e9"`, "\"\xff\""}
	numbers := []string{`1`, `20`, `null`, ``, `3}`, `{}`, `,"created":1`}
	fitted := 0
	rapid.Check(t, func(r *rapid.T) {
		var events [][]byte
		shape := rapid.SampledFrom(shapes).Draw(r, "shape")
		for range rapid.IntRange(2, 12).Draw(r, "events") {
			if rapid.IntRange(0, 3).Draw(r, "another shape") == 0 {
				shape = rapid.SampledFrom(shapes).Draw(r, "shape")
			}
			var event []byte
			for _, c := range []byte(shape) {
				switch c {
				case 'T':
					event = append(event, rapid.SampledFrom(texts).Draw(r, "text")...)
				case 'N':
					event = append(event, rapid.SampledFrom(numbers).Draw(r, "number")...)
				default:
					event = append(event, c)
				}
			}
			events = append(events, event)
		}
		fitted += checkForm(t, events)
	})
	if fitted == 0 {
		t.Error("no event fitted the one before")
	}
}

// FuzzForm reads any event after any other.
func FuzzForm(f *testing.F) {
	f.Add([]byte(`{"choices":[{"text":"a"}]}`), []byte(`{"choices":[{"text":"b\""}]}`))
	f.Add([]byte(`{"choices":[{"text":"a"}]}`), []byte(`{"choices":[{"text":"}]}`))
	f.Fuzz(func(t *testing.T, first, second []byte) { checkForm(t, [][]byte{first, second, first}) })
}
