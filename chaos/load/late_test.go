//go:build linux

package load

import (
	"errors"
	"testing"

	"github.com/weirlimit/weir/chaos/history"
)

// A node was late between the two times that it was asked.
func TestLateness(t *testing.T) {
	var seen lateness
	gone := errors.New("it does not answer")
	for i, step := range []struct {
		run, times      int
		asked, answered history.Micros
		err             error
		want            history.Span // none: it was not late
	}{
		{run: 1, asked: 10, answered: 11},
		{run: 1, times: 1, asked: 20, answered: 21, want: history.Span{From: 10, Until: 21}},
		{run: 1, times: 1, asked: 30, answered: 31},
		{run: 1, asked: 40, answered: 41, err: gone},
		{run: 1, times: 3, asked: 50, answered: 55, want: history.Span{From: 30, Until: 55}},
		{run: 2, asked: 60, answered: 61, err: gone},
		{run: 2, times: 1, asked: 70, answered: 71, want: history.Span{From: 60, Until: 71}},
		{run: 2, times: 1, asked: 80, answered: 81},
		{run: 3, times: 0, asked: 90, answered: 91},
	} {
		got, late := seen.heard(step.run, step.times, step.asked, step.answered, step.err)
		if late != (step.want != history.Span{}) || late && got != step.want {
			t.Errorf("step %d: late %v, %v, want %v", i, late, got, step.want)
		}
	}
}
