package mock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultKind is a way to fail.
type FaultKind string

// The kinds of faults; the package comment says what each does.
const (
	Stall       FaultKind = "stall"
	ServerStall FaultKind = "server-stall"
	CutHeaders  FaultKind = "cut:at=headers"
	CutChunk    FaultKind = "cut:at=chunk"
	CutDone     FaultKind = "cut:at=done"
	Status      FaultKind = "status"
	ErrorEvent  FaultKind = "error-event"
	SlowHeaders FaultKind = "slow-headers"
	Garbage     FaultKind = "garbage"
	HalfEvent   FaultKind = "half-event"
	WrongUsage  FaultKind = "wrong-usage"
	Duplicate   FaultKind = "duplicate"
	NoDone      FaultKind = "no-done"
)

// Fault is one way in which the server fails.
type Fault struct {
	// Kind is how.
	Kind FaultKind
	// Token is the token that it strikes, from 1.
	Token int
	// For is how long it lasts.
	For time.Duration
	// At is when a stall of the server begins, since its start, and Period, if it
	// is not 0, when it comes again.
	At, Period time.Duration
	// Code is the HTTP status, and RetryAfter, if it is not 0, goes with it.
	Code       int
	RetryAfter time.Duration
	// By is how many tokens too many the usage says.
	By int
	// Every strikes each request with a number that it divides; 0 is each one.
	Every int
	// Share strikes requests at random, as a share 0..1 of all; 0 is each one.
	Share float64
}

// maxFaultText bounds the text of faults, in bytes: a header of a request.
const maxFaultText = 4 << 10

// ParseFaults reads faults separated by semicolons, as the package comment
// shows them.
func ParseFaults(text string) ([]Fault, error) {
	if len(text) > maxFaultText {
		return nil, fmt.Errorf("read the faults: %d bytes: want at most %d", len(text), maxFaultText)
	}
	var all []Fault
	var faults []error
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		f, err := parseFault(part)
		if err != nil {
			faults = append(faults, fmt.Errorf("fault %q: %w", part, err))
			continue
		}
		all = append(all, f)
	}
	return all, errors.Join(faults...)
}

func parseFault(text string) (Fault, error) {
	name, settings, _ := strings.Cut(text, ":")
	f := Fault{Kind: FaultKind(name), Token: 1, By: 1}
	where := ""
	for pair := range strings.SplitSeq(settings, ",") {
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if name == "cut" && key == "at" {
			where = value
			continue
		}
		if err := f.set(key, value); err != nil {
			return f, err
		}
	}
	switch name {
	case "cut":
		if where == "" {
			where = "chunk"
		}
		f.Kind = FaultKind("cut:at=" + where)
	case "429", "500", "503":
		f.Kind = Status
		f.Code, _ = strconv.Atoi(name) // three digits
	case string(HalfEvent):
		if f.For == 0 {
			f.For = 5 * time.Millisecond
		}
	}
	return f, f.validate()
}

// set fills in one setting.
func (f *Fault) set(key, value string) (err error) {
	count := func(field *int) { *field, err = strconv.Atoi(value) }
	span := func(field *time.Duration) { *field, err = time.ParseDuration(value) }
	switch key {
	case "token":
		count(&f.Token)
	case "by":
		count(&f.By)
	case "every":
		count(&f.Every)
	case "code":
		count(&f.Code)
	case "for":
		span(&f.For)
	case "at":
		span(&f.At)
	case "period":
		span(&f.Period)
	case "retry-after":
		span(&f.RetryAfter)
	case "share":
		f.Share, err = strconv.ParseFloat(value, 64)
	default:
		return fmt.Errorf("unknown setting %q: want token, for, at, period, code, retry-after, by, every or share", key)
	}
	if err != nil {
		return fmt.Errorf("%s=%s: %w", key, value, errors.Unwrap(err))
	}
	return nil
}

// validate says what is wrong with a fault.
func (f Fault) validate() error {
	switch f.Kind {
	case Stall, ServerStall, SlowHeaders, HalfEvent:
		if f.For <= 0 {
			return fmt.Errorf("%s wants for= with a time", f.Kind)
		}
	case Status:
		if f.Code < 400 || f.Code > 599 {
			return fmt.Errorf("status %d: want code= of 400 to 599", f.Code)
		}
	case CutHeaders, CutChunk, CutDone, ErrorEvent, Garbage, WrongUsage, Duplicate, NoDone:
	default:
		return fmt.Errorf("unknown kind %q: want stall, server-stall, cut, 429, 500, 503, status, error-event, slow-headers, garbage, half-event, wrong-usage, duplicate or no-done", f.Kind)
	}
	for _, d := range []time.Duration{f.For, f.At, f.Period, f.RetryAfter} {
		if d < 0 || d > time.Hour {
			return fmt.Errorf("%v: want 0 to 1 h", d)
		}
	}
	if f.Token < 0 || f.Every < 0 || !(f.Share >= 0 && f.Share <= 1) {
		return errors.New("want token and every of 0 or more, and a share of 0..1")
	}
	if f.Kind == ServerStall && f.Period > 0 && f.Period <= f.For {
		return fmt.Errorf("period %v: want more than the %v that each stall lasts", f.Period, f.For)
	}
	return nil
}

// strikes are the faults of one request.
type strikes []Fault

// find returns the fault of a kind.
func (s strikes) find(kind FaultKind) (Fault, bool) {
	i := slices.IndexFunc(s, func(f Fault) bool { return f.Kind == kind })
	if i < 0 {
		return Fault{}, false
	}
	return s[i], true
}

// within returns the fault of a kind that strikes one of the tokens first to
// last, counted from 1.
func (s strikes) within(kind FaultKind, first, last int) (Fault, bool) {
	f, ok := s.find(kind)
	return f, ok && f.Token >= first && f.Token <= last
}

// chooseFaults picks the faults of the n-th request, from 1: its own ones, or
// those of the server that strike it.
func (o Options) chooseFaults(n uint64, r *http.Request) (strikes, error) {
	text := r.Header.Get("X-Llmprof-Mock-Fault")
	if text == "" && r.URL.RawQuery != "" {
		text = r.URL.Query().Get("fault")
	}
	all := o.Faults
	if text != "" {
		var err error
		if all, err = ParseFaults(text); err != nil {
			return nil, err
		}
	}
	var struck strikes
	for i, f := range all {
		switch {
		case f.Every > 0 && n%uint64(f.Every) != 0:
		case f.Share > 0 && rand.New(rand.NewPCG(o.Seed+uint64(i), n)).Float64() >= f.Share:
		default:
			struck = append(struck, f)
		}
	}
	return struck, nil
}

// afterStalls moves a moment, since the start of the server, out of the stalls
// of the whole server.
func (o Options) afterStalls(since time.Duration) time.Duration {
	for _, f := range o.Faults {
		if f.Kind != ServerStall || since < f.At {
			continue
		}
		into := since - f.At
		if f.Period > 0 {
			into %= f.Period
		}
		if into < f.For {
			since += f.For - into
		}
	}
	return since
}
