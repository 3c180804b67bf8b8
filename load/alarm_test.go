package load

import (
	"testing"
	"time"
)

func TestAlarm(t *testing.T) {
	a, err := NewAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer a.Bind()()
	if a.Sleep(time.Millisecond) {
		t.Error("the sleep tells of a ring, and nobody rang")
	}
	a.Ring()
	a.Ring()
	if !a.Sleep(-1) {
		t.Error("a ring before the sleep did not end it")
	}
	if a.Sleep(time.Microsecond) {
		t.Error("the rings were not used up by the sleep that they ended")
	}
	go a.Ring()
	rung := false
	for !rung { // it may end too early, and does not say so then
		rung = a.Sleep(-1)
	}
}
