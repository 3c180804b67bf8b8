package store_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llmprof/llmprof/store"
)

// The variables that make this test binary another process's store.
const (
	roleVariable = "LLMPROF_STORE_TEST_ROLE"
	pathVariable = "LLMPROF_STORE_TEST_PATH"
	mostVariable = "LLMPROF_STORE_TEST_MOST" // cells to finish before it waits to be killed; none for all
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	if err := play(context.Background(), role, os.Getenv(pathVariable), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		fmt.Fprintln(os.Stderr, "hint:", hintOf(err))
		os.Exit(1)
	}
	os.Exit(0)
}

// play is what another process does.
func play(ctx context.Context, role, path string, out io.Writer) error {
	st, err := store.Open(ctx, path)
	if err != nil {
		return err
	}
	switch role {
	case "work":
		err = work(ctx, st, out)
	case "hold":
		if _, err = st.Lock(ctx, "r", "held by a child", time.Hour); err == nil {
			fmt.Fprintln(out, "held")
			select {} // until it is killed
		}
	case "open":
	default:
		err = errors.New("no such role: " + role)
	}
	return errors.Join(err, st.Close())
}

// work measures every cell of run "r" that nobody else does, and names each
// when it is finished.
func work(ctx context.Context, st *store.Store, out io.Writer) error {
	cells, err := st.Cells(ctx, "r")
	if err != nil {
		return err
	}
	left := -1
	if text := os.Getenv(mostVariable); text != "" {
		if left, err = strconv.Atoi(text); err != nil {
			return err
		}
	}
	for _, c := range cells {
		if left == 0 {
			time.Sleep(time.Hour) // until it is killed
		}
		c.Attempts, err = st.Begin(ctx, c.RunID, c.Hash, noon())
		if _, taken := errors.AsType[*store.StateError](err); taken {
			continue
		}
		if err != nil {
			return err
		}
		c.State, c.Result = store.Done, resultOf(c)
		if err := st.Finish(ctx, c); err != nil {
			return err
		}
		fmt.Fprintln(out, c.Hash)
		left--
	}
	return nil
}

// resultOf is what is measured for a cell: enough for several pages.
func resultOf(c store.Cell) json.RawMessage {
	return json.RawMessage(fmt.Sprintf("%q", strings.Repeat(c.Hash+" ", 1000)))
}

// child starts another process on a store; lines are what it prints.
func child(t *testing.T, role, path string, env ...string) (cmd *exec.Cmd, lines *bufio.Scanner) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), self)
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role, pathVariable+"="+path), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

// onDisk is a store in a file with run "r" of n pending cells.
func onDisk(t *testing.T, n int) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s.db")
	st := open(t, path)
	if err := errors.Join(st.CreateRun(t.Context(), store.Run{ID: "r"}, cellsOf(n)), st.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestKilled kills a process 20 times while it begins and finishes cells.
// Every cell that it called finished is there, whole and once, and the rest
// can be gone on with.
func TestKilled(t *testing.T) {
	const kills, most, n = 20, 12, 250
	path := onDisk(t, n)
	random := rand.New(rand.NewPCG(1, 2))
	said, inFlight := map[string]bool{}, 0
	for range kills {
		cmd, lines := child(t, "work", path, fmt.Sprint(mostVariable, "=", most)) // however late it is killed
		for range random.IntN(most) {
			if !lines.Scan() {
				break
			}
			said[lines.Text()] = true
		}
		time.Sleep(time.Duration(random.IntN(500)) * time.Microsecond) // into the middle of a change
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it had said before
			said[lines.Text()] = true
		}
		_ = cmd.Wait() // killed
		_, recovered := checkAfterKill(t, path, said)
		inFlight += recovered
	}
	before := len(said)
	t.Logf("%d of %d kills hit a cell in flight; %d of %d cells were done", inFlight, kills, before, n)
	if before == n {
		t.Error("all cells were done before the last kill: want more cells")
	}
	cmd, lines := child(t, "work", path)
	for lines.Scan() {
		if said[lines.Text()] {
			t.Errorf("cell %s was measured twice", lines.Text())
		}
		said[lines.Text()] = true
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if done, _ := checkAfterKill(t, path, said); done != n {
		t.Errorf("%d cells are done at the end: want all %d", done, n)
	}
}

// checkAfterKill opens a store whose process died, recovers its run and
// returns the numbers of cells that are done and that were in flight.
func checkAfterKill(t *testing.T, path string, said map[string]bool) (done, inFlight int) {
	t.Helper()
	st, err := store.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	var sound string
	if err := st.DB().QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&sound); err != nil || sound != "ok" {
		t.Fatalf("integrity: %s, %v", sound, err)
	}
	recovered, err := st.Recover(t.Context(), "r")
	if err != nil || len(recovered) > 1 {
		t.Errorf("recovered %d cells, %v: want at most the one in flight", len(recovered), err)
	}
	cells, err := st.Cells(t.Context(), "r")
	if err := errors.Join(err, st.Close()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, c := range cells {
		if seen[c.Hash] {
			t.Errorf("cell %s is there twice", c.Hash)
		}
		seen[c.Hash] = true
		switch {
		case c.State == store.Done:
			done++
			said[c.Hash] = true // it was killed before it could say so
			if string(c.Result) != string(resultOf(c)) {
				t.Errorf("the result of cell %s is not whole", c.Hash)
			}
		case said[c.Hash]:
			t.Errorf("cell %s was finished and is %s", c.Hash, c.State)
		case c.State != store.Pending:
			t.Errorf("cell %s is %s: want it pending", c.Hash, c.State)
		}
	}
	return done, len(recovered)
}

// TestProcessesShareARun lets three processes work on the cells of one run.
func TestProcessesShareARun(t *testing.T) {
	const n = 60
	path := onDisk(t, n)
	type worker struct {
		cmd   *exec.Cmd
		lines *bufio.Scanner
	}
	var workers []worker
	for range 3 {
		cmd, lines := child(t, "work", path)
		workers = append(workers, worker{cmd, lines})
	}
	by := map[string]int{}
	for _, w := range workers {
		for w.lines.Scan() {
			by[w.lines.Text()]++
		}
		if err := w.cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	for _, c := range cellsOf(n) {
		if by[c.Hash] != 1 {
			t.Errorf("cell %s was measured by %d processes: want 1", c.Hash, by[c.Hash])
		}
	}
	cells, err := open(t, path).Cells(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells {
		if c.State != store.Done || c.Attempts != 1 {
			t.Errorf("cell %s is %s after %d attempts: want it done after 1", c.Hash, c.State, c.Attempts)
		}
	}
}

// TestProcessesMakeAStore lets processes open a store that is not there yet,
// all at once.
func TestProcessesMakeAStore(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "new", "s.db")
		var all []*exec.Cmd
		for range 5 {
			cmd, _ := child(t, "open", path)
			all = append(all, cmd)
		}
		for _, cmd := range all {
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLockOfKilledProcess takes a lock over when its process is dead and its
// ttl is over.
func TestLockOfKilledProcess(t *testing.T) {
	path := onDisk(t, 1)
	cmd, lines := child(t, "hold", path)
	if !lines.Scan() {
		t.Fatal("the child holds no lock")
	}
	st := open(t, path)
	_, err := st.Lock(t.Context(), "r", "me", time.Minute)
	wantError(t, err, "in use by held by a child", "its lock ends at")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	st.SetClock(func() time.Time { return time.Now().Add(time.Hour) })
	release, err := st.Lock(t.Context(), "r", "me", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
