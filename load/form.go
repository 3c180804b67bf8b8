package load

import "bytes"

// form is the last event of a stream around its text. Engines repeat it from
// chunk to chunk, and where only the text is another one, so is nothing else
// that is read from the event.
type form struct {
	before, after []byte
	piece         piece
}

// parse reads an event as [parsePiece] does.
func (f *form) parse(event []byte) (piece, error) {
	if f.fits(event) {
		return f.piece, nil
	}
	p, err := parsePiece(event)
	*f = form{}
	if err == nil && p.text && p.words != nil {
		start := cap(event) - cap(p.words) // both end with the same memory
		f.before, f.after, f.piece = event[:start], event[start+len(p.words):], p
	}
	return p, err
}

// fits reports whether an event is that of the form with another text, which
// is not empty either.
func (f *form) fits(event []byte) bool {
	length := len(event) - len(f.before) - len(f.after)
	if f.before == nil || length < len(`"x"`) || !bytes.HasSuffix(event, f.after) || !bytes.HasPrefix(event, f.before) {
		return false
	}
	words := event[len(f.before) : len(f.before)+length]
	end, err := skipString(words, 0)
	return err == nil && end == length && words[0] == '"'
}
