package load

import "bytes"

// form is how the last event of a stream began, up to the end of its choices
// and around the text in them. Engines repeat that from chunk to chunk, and
// where only the text is another one, so is nothing else that is read there.
type form struct {
	before, after []byte
	piece         piece // as read so far
}

// parse reads an event as [parsePiece] does.
func (f *form) parse(event []byte) (piece, error) {
	if end := f.fits(event); end > 0 {
		p := f.piece
		err := walkOn(event, end, p.member)
		return p, err
	}
	*f = form{}
	var p piece
	err := walkObject(event, func(key, value []byte) error {
		err := p.member(key, value)
		if err == nil && p.words != nil && string(key) == "choices" {
			start := cap(event) - cap(p.words) // all end with the same memory
			end := cap(event) - cap(value) + len(value)
			f.before, f.after, f.piece = event[:start], event[start+len(p.words):end], p
		}
		return err
	})
	return p, err
}

// fits returns where the choices of an event end that begins with the form and
// another text, which is not empty either; 0 for any other event.
func (f *form) fits(event []byte) int {
	if f.before == nil || !bytes.HasPrefix(event, f.before) {
		return 0
	}
	words := event[len(f.before):]
	end, err := skipValue(words, 0, 0)
	if err != nil || !filled(words[:end]) || !bytes.HasPrefix(words[end:], f.after) {
		return 0
	}
	return len(f.before) + end + len(f.after)
}
