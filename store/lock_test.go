package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llmprof/llmprof/store"
)

// contextCancelled is a context that is over.
func contextCancelled(t *testing.T) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx, cancel
}

// clock is a time that tests move.
type clock struct{ seconds atomic.Int64 }

func (c *clock) now() time.Time          { return noon().Add(time.Duration(c.seconds.Load()) * time.Second) }
func (c *clock) advance(d time.Duration) { c.seconds.Add(int64(d / time.Second)) }

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	mine, theirs := open(t, path), open(t, path)
	var wall clock
	mine.SetClock(wall.now)
	theirs.SetClock(wall.now)
	const ttl = time.Hour // nothing is renewed while the test runs
	for _, id := range []string{"r", "s"} {
		if err := mine.CreateRun(t.Context(), store.Run{ID: id}, nil); err != nil {
			t.Fatal(err)
		}
	}
	release, err := mine.Lock(t.Context(), "r", "node-1:17", ttl)
	if err != nil {
		t.Fatal(err)
	}
	_, err = theirs.Lock(t.Context(), "r", "node-1:18", ttl)
	wantError(t, err, "run r is in use by node-1:17", "its lock ends at 2026-03-01T13:00:00Z")
	if held, ok := errors.AsType[*store.LockedError](err); !ok || !held.Until.Equal(wall.now().Add(ttl)) || codeOf(err) != 4 {
		t.Errorf("got %+v, exit code %d: want a LockedError until the ttl is over, exit code 4", held, codeOf(err))
	}
	if _, err := mine.Lock(t.Context(), "r", "node-1:17", ttl); err == nil {
		t.Error("the owner locked a second time: want a refusal")
	}
	other, err := theirs.Lock(t.Context(), "s", "node-1:18", ttl)
	if err != nil {
		t.Errorf("another run is free: %v", err)
	}
	for range 2 {
		if err := release(); err != nil {
			t.Errorf("release, also a second time: %v", err)
		}
	}
	taken, err := theirs.Lock(t.Context(), "r", "node-1:18", ttl)
	if err != nil {
		t.Fatalf("a released run is free: %v", err)
	}
	if err := errors.Join(taken(), other()); err != nil {
		t.Error(err)
	}
}

func TestLockIsTakenOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	mine, theirs := open(t, path), open(t, path)
	var wall clock
	mine.SetClock(wall.now)
	theirs.SetClock(wall.now)
	const ttl = time.Hour
	if err := mine.CreateRun(t.Context(), store.Run{ID: "r"}, nil); err != nil {
		t.Fatal(err)
	}
	release, err := mine.Lock(t.Context(), "r", "dead", ttl)
	if err != nil {
		t.Fatal(err)
	}
	wall.advance(ttl - time.Second)
	if _, err := theirs.Lock(t.Context(), "r", "heir", ttl); err == nil {
		t.Error("locked a second before the ttl is over")
	}
	wall.advance(time.Second)
	taken, err := theirs.Lock(t.Context(), "r", "heir", ttl)
	if err != nil {
		t.Fatalf("the ttl is over: %v", err)
	}
	if err := release(); !errors.Is(err, store.ErrLockLost) {
		t.Errorf("released what another had taken: %v: want %v", err, store.ErrLockLost)
	}
	if _, err := mine.Lock(t.Context(), "r", "dead", ttl); err == nil {
		t.Error("a late release freed the heir's lock")
	}
	if err := taken(); err != nil {
		t.Error(err)
	}
}

// TestHoldEndsWithItsLock: another takes the run over; the work under the old
// lock is told, and changes nothing any more.
func TestHoldEndsWithItsLock(t *testing.T) {
	for _, test := range []struct {
		why  string
		ttl  time.Duration
		told bool
	}{
		{"the next renewal finds out", 30 * time.Millisecond, true},
		{"nothing was renewed yet", time.Hour, false},
	} {
		t.Run(test.why, func(t *testing.T) {
			path := onDisk(t, 2)
			mine, theirs := open(t, path), open(t, path)
			held, release, err := mine.Hold(t.Context(), "r", "mine", test.ttl)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := mine.Begin(held, "r", "c0", noon()); err != nil {
				t.Fatalf("under the lock: %v", err)
			}
			if err := theirs.Break(t.Context(), "r", "mine"); err != nil {
				t.Fatal(err)
			}
			heir, releaseHeir, err := theirs.Hold(t.Context(), "r", "theirs", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if test.told {
				<-held.Done()
				if err := context.Cause(held); !errors.Is(err, store.ErrLockLost) {
					t.Errorf("the context ended with %v: want %v", err, store.ErrLockLost)
				}
			}
			if _, err := theirs.Recover(heir, "r"); err != nil {
				t.Fatal(err)
			}
			if _, err := theirs.Begin(heir, "r", "c0", noon()); err != nil {
				t.Fatal(err)
			}
			late := context.WithoutCancel(held)
			_, recovered := mine.Recover(late, "r")
			_, begun := mine.Begin(late, "r", "c1", noon())
			_, reset := mine.Reset(late, "r", store.Failed)
			_, added := mine.AddCells(late, "r", []store.Cell{{Hash: "new"}})
			replaced := mine.Replace(late, "r", "c1", store.Cell{Hash: "new"})
			for what, err := range map[string]error{"recover": recovered, "begin": begun, "reset": reset, "add": added, "replace": replaced, "finish": mine.Finish(late, end("c0", 1, store.Failed))} {
				if !errors.Is(err, store.ErrLockLost) {
					t.Errorf("%s after the lock was lost: %v: want %v", what, err, store.ErrLockLost)
				}
			}
			if c := cellOf(t, theirs, "r", "c0"); c.State != store.Running || c.Attempts != 2 {
				t.Errorf("the heir's cell is %s after %d attempts: want it running in its second", c.State, c.Attempts)
			}
			if err := release(); !errors.Is(err, store.ErrLockLost) {
				t.Errorf("released what was lost: %v", err)
			}
			if err := theirs.Finish(heir, end("c0", 2, store.Done)); err != nil {
				t.Errorf("the heir works on: %v", err)
			}
			if err := releaseHeir(); err != nil {
				t.Error(err)
			}
			<-heir.Done() // nothing is done under a lock that was given back
		})
	}
}

// TestLockIsRenewed waits until the end of a lock has moved, also when the
// context that it was taken under is over.
func TestLockIsRenewed(t *testing.T) {
	st := filled(t, 0)
	ctx, cancel := context.WithCancel(t.Context())
	release, err := st.Lock(ctx, "r", "me", 30*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	until := func() (text string) {
		if err := st.DB().QueryRowContext(t.Context(), "SELECT expires FROM locks").Scan(&text); err != nil {
			t.Fatal(err)
		}
		return text
	}
	for first, moves := until(), 0; moves < 3; {
		if now := until(); now > first {
			first, moves = now, moves+1
		}
		time.Sleep(time.Millisecond)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

func TestCloseGivesLocksBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	st, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.CreateRun(t.Context(), store.Run{ID: "r"}, nil); err != nil {
		t.Fatal(err)
	}
	release, err := st.Lock(t.Context(), "r", "me", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(st.Close(), release()); err != nil {
		t.Fatalf("close, then release: %v", err)
	}
	again, err := open(t, path).Lock(t.Context(), "r", "you", time.Hour)
	if err != nil {
		t.Fatalf("the lock outlived its store: %v", err)
	}
	if err := again(); err != nil {
		t.Error(err)
	}
}

func TestLockRefuses(t *testing.T) {
	st := filled(t, 0)
	tests := []struct {
		why, run, owner string
		ttl             time.Duration
		want            string
	}{
		{"others are told who it is", "r", "", time.Hour, "the owner is empty"},
		{"a lock that never ends by itself would stay for good", "r", "me", 0, "ttl 0s"},
		{"nor can it end before it begins", "r", "me", -time.Hour, "ttl -1h"},
		{"there must be a run", "x", "me", time.Hour, `run "x": not in the store`},
	}
	for _, test := range tests {
		t.Run(test.why, func(t *testing.T) {
			_, err := st.Lock(t.Context(), test.run, test.owner, test.ttl)
			wantError(t, err, test.want, "")
		})
	}
}
