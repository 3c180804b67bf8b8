package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lock takes a run for one process until release is called or the store is
// closed. Owner tells others who holds it, "host:pid" for example. The lock is
// renewed in the background; it ends by itself ttl after its process died, and
// can then be taken by another. A run that is locked is a [*LockedError].
//
// Release may be called more than once. It returns [ErrLockLost] if somebody
// else could have taken the run meanwhile. Work that takes long wants to know
// that before: see [Store.Hold].
func (s *Store) Lock(ctx context.Context, runID, owner string, ttl time.Duration) (release func() error, err error) {
	_, release, err = s.Hold(ctx, runID, owner, ttl)
	return release, err
}

// Hold takes a run as [Store.Lock] does and returns a context for the work under
// the lock. The context ends with the cause [ErrLockLost] when another has the
// run, and the store refuses every change that is asked for with it, or with one
// made from it, unless the lock is held at that moment.
func (s *Store) Hold(ctx context.Context, runID, owner string, ttl time.Duration) (held context.Context, release func() error, err error) {
	doing := "lock run " + runID
	if err := errors.Join(checkName("owner", owner), checkTTL(ttl)); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", doing, err)
	}
	l := &lease{store: s, runID: runID, token: rand.Text(), ttl: ttl, stop: make(chan struct{}), stopped: make(chan struct{})}
	err = s.change(ctx, doing, func(tx *sql.Tx) error {
		if err := requireRun(ctx, tx, runID); err != nil {
			return err
		}
		if err := s.requireUnlocked(ctx, tx, runID); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO locks (run_id, owner, token, expires) VALUES (?,?,?,?)",
			runID, owner, l.token, moment(s.now().Add(ttl)))
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	s.leases[l] = struct{}{}
	s.mu.Unlock()
	held, l.end = context.WithCancelCause(context.WithValue(ctx, leaseKey{}, l))
	go l.renew(context.WithoutCancel(ctx)) // what was interrupted is still being put away under the lock
	return held, l.release, nil
}

// leaseKey finds the lease that a context works under.
type leaseKey struct{}

// requireHeld refuses a change under a lock that is another's by now.
func requireHeld(ctx context.Context, tx *sql.Tx) error {
	l, ok := ctx.Value(leaseKey{}).(*lease)
	if !ok {
		return nil
	}
	var held bool
	err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM locks WHERE run_id = ? AND token = ?)", l.runID, l.token).Scan(&held)
	if err == nil && !held {
		return ErrLockLost
	}
	return err
}

// Break takes the lock of a run away from an owner that is known to be dead, and
// from nobody else.
func (s *Store) Break(ctx context.Context, runID, owner string) error {
	return s.change(ctx, "break the lock of run "+runID, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "DELETE FROM locks WHERE run_id = ? AND owner = ?", runID, owner)
		return err
	})
}

func checkTTL(ttl time.Duration) error {
	if ttl < time.Millisecond {
		return fmt.Errorf("ttl %s: want at least 1ms", ttl)
	}
	return nil
}

// requireUnlocked refuses a run that somebody holds.
func (s *Store) requireUnlocked(ctx context.Context, tx *sql.Tx, runID string) error {
	held := &LockedError{RunID: runID}
	err := tx.QueryRowContext(ctx, "SELECT owner, expires FROM locks WHERE run_id = ?", runID).Scan(&held.Owner, (*moment)(&held.Until))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case held.Until.After(s.now()):
		return held
	}
	return nil
}

// lease is a lock that this process holds.
type lease struct {
	store        *Store
	runID, token string
	ttl          time.Duration
	end          context.CancelCauseFunc // of the context for the work under the lock

	once    sync.Once
	stop    chan struct{} // closed by release
	stopped chan struct{} // closed when renew has returned
	err     error         // of the release
}

// renew moves the end of the lock until it is released or lost. What cannot
// be written now may be the next time.
func (l *lease) renew(ctx context.Context) {
	defer close(l.stopped)
	const perTTL = 3 // two renewals may fail
	tick := time.NewTicker(l.ttl / perTTL)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
		done, err := l.store.db.ExecContext(ctx, "UPDATE locks SET expires = ? WHERE run_id = ? AND token = ?",
			moment(l.store.now().Add(l.ttl)), l.runID, l.token)
		if err != nil {
			continue
		}
		if n, err := done.RowsAffected(); err == nil && n == 0 {
			l.end(ErrLockLost)
			return
		}
	}
}

// release gives the lock back once.
func (l *lease) release() error {
	l.once.Do(func() {
		close(l.stop)
		<-l.stopped
		l.store.mu.Lock()
		delete(l.store.leases, l)
		l.store.mu.Unlock()
		l.err = l.store.explain("release run "+l.runID, l.remove())
		l.end(nil)
	})
	return l.err
}

// remove deletes the lock if it is still this one.
func (l *lease) remove() error {
	// The run may have been interrupted, and its lock must go all the same.
	done, err := l.store.db.ExecContext(context.Background(), "DELETE FROM locks WHERE run_id = ? AND token = ?", l.runID, l.token)
	if err != nil {
		return err
	}
	if n, err := done.RowsAffected(); err != nil || n == 0 {
		return orElse(err, ErrLockLost)
	}
	return nil
}
