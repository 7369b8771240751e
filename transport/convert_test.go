package transport

import (
	"testing"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// The JSON that is made of a node's message names who decided, as the node's own
// does.
func TestOwnerIsTold(t *testing.T) {
	a := AnswerOf(&weirv1.CheckResponse{Limits: []*weirv1.LimitDecision{{Owner: "node-2"}}})
	if len(a.Limits) != 1 || a.Limits[0].Owner != "node-2" {
		t.Errorf("%+v", a)
	}
}
