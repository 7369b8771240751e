package weirtest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/weirtest"
)

var _ weirtest.TB = testing.TB(nil)

// The clock stands until it is moved, and a check sees each movement.
func TestTheClockIsMoved(t *testing.T) {
	n := weirtest.New(t, "{version: 1, rules: [{name: all, limits: [{limit: 1, window: 1h, algorithm: fixed_window}]}]}")
	check := func(want bool, wait time.Duration) {
		t.Helper()
		d, err := n.Check(t.Context(), weir.Request{Path: "/towns"})
		if err != nil || d.Allowed != want || d.RetryAfter != wait {
			t.Errorf("%v: %v, allowed %t, retry after %v; want %t, %v", n.Now(), err, d.Allowed, d.RetryAfter, want, wait)
		}
	}
	check(true, 0)
	check(false, time.Hour)
	n.Advance(time.Hour - time.Microsecond)
	check(false, time.Microsecond)
	n.Advance(time.Microsecond)
	check(true, 0)
	n.SetTime(weirtest.Start().Add(90 * time.Minute))
	check(false, 30*time.Minute)
	if want := weirtest.Start().Add(90 * time.Minute); !n.Now().Equal(want) {
		t.Errorf("the clock stands at %v, want %v", n.Now(), want)
	}
}

// The node is closed with the test, and what is not valid fails the test.
func TestTheTestEnds(t *testing.T) {
	ended := new(test)
	n := weirtest.New(ended, "{version: 1, rules: []}")
	ended.end()
	if err := n.Ready(); !errors.Is(err, weir.ErrClosed) {
		t.Errorf("after the test the node is not closed: %v", err)
	}
	defer func() {
		if why := fmt.Sprint(recover()); !strings.Contains(why, "rules:1:1") {
			t.Errorf("rules that are not valid: %s", why)
		}
	}()
	weirtest.New(new(test), "version: 7")
}
