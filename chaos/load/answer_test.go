//go:build linux

package load

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirlimit/weir/chaos/history"
)

// Only a node that says that it comes or goes has refused a check: whatever else is no
// decision is an error of its own, and may have been counted.
func TestNoDecision(t *testing.T) {
	for _, row := range []struct {
		status int
		text   string
		want   history.Outcome
	}{
		{200, `{"allowed": true, "source": "owner"}`, history.Allowed},
		{429, `{"allowed": false, "source": "heir"}`, history.Denied},
		{503, `{"allowed": false, "source": "fallback_closed"}`, history.Denied},
		{503, `{"status": 503, "detail": "the node is joining: ask another one until it is ready"}`, history.Refused},
		{503, `{"status": 503, "detail": "the node is stopping: ask another one, or again in a moment"}`, history.Refused},
		{503, `{"status": 503, "detail": "weir: the node is closed"}`, history.Refused},
		{503, `{"status": 503, "detail": "no"}`, history.Error},
		{500, `{"status": 500, "detail": "no"}`, history.Error},
		{500, `{"status": 500, "detail": "the node is joining"}`, history.Error},
		{400, `{"status": 400, "detail": "no rule"}`, history.Error},
		{504, `{"status": 504, "detail": "it may be done"}`, history.Error},
		{200, `{}`, history.Error},
		{503, `upstream is gone`, history.Error},
		{200, ``, history.Error},
	} {
		var op history.Op
		a, err := answerOf(row.status, []byte(row.text))
		record(&op, a, err)
		if op.Outcome != row.want || (op.Says == "") != (row.want == history.Allowed || row.want == history.Denied) {
			t.Errorf("%d %s is %s %q, want %s", row.status, row.text, op.Outcome, op.Says, row.want)
		}
	}
}

// A batch is read check by check, as a node may begin to stop in the middle of one.
func TestNoDecisionInABatch(t *testing.T) {
	results := make([]string, hotBatch)
	for i := range results {
		results[i] = `{"answer": {"allowed": true, "source": "owner"}}`
	}
	results[3] = `{"error": {"status": 503, "detail": "weir: the node is closed"}}`
	results[4] = `{"error": {"status": 500, "detail": "no"}}`
	got, err := answersOf(200, fmt.Appendf(nil, `{"results": [%s]}`, strings.Join(results, ",")))
	if err != nil || len(got) != hotBatch {
		t.Fatalf("%d answers, %v", len(got), err)
	}
	for i := range got {
		want := history.Allowed
		switch i {
		case 3:
			want = history.Refused
		case 4:
			want = history.Error
		}
		var op history.Op
		if record(&op, got[i].answer, got[i].err); op.Outcome != want {
			t.Errorf("check %d is %s, want %s", i, op.Outcome, want)
		}
	}
	for text, want := range map[string]error{
		`{"status": 503, "detail": "the node is leaving"}`: refusal("the node is leaving"),
		`{"status": 503, "detail": "no"}`:                  errWrong,
		`{"results": []}`:                                  errWrong,
		`gone`:                                             errWrong,
	} {
		if _, err := answersOf(503, []byte(text)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want one that is %v", text, err, want)
		}
	}
}
