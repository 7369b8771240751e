package weirwire_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/weirwire"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// The counts of a message's parts equal those of the protobuf library.
func TestCountsAreProtobufs(t *testing.T) {
	m := &weirv1.CheckColumns{
		Id: 9, PathLengths: make([]uint32, 7), Costs: []int64{1, -1, 1 << 40, 0, 0, 0, 0}, RuleCosts: []uint32{300, 4},
		Attributes: []*weirv1.AttributeColumn{{Name: "a", Lengths: []uint32{1, 1 << 20, 3}}, {Name: "b"}},
	}
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	got, err := weirwire.CountColumns(raw)
	if want := (weirwire.ColumnsCount{ID: 9, Checks: 7, Attributes: 2, Values: 3}); got != want || err != nil {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	request := &weirv1.CheckRequest{Attributes: map[string]string{"a": "b", "c": ""},
		Limits: []*weirv1.Limit{{Key: []string{"", "user"}}, {Limit: 3}, {Key: []string{"ip"}}}}
	if raw, err = proto.Marshal(request); err != nil {
		t.Fatal(err)
	}
	if got, err := weirwire.CountParts(raw); got != (weirwire.Parts{Attributes: 2, Limits: 3, KeyParts: 3}) || err != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	settle := &weirv1.SettleRequest{ActualByAttribute: map[string]int64{"tokens": 1, "udollars": 2}}
	if raw, err = proto.Marshal(settle); err != nil {
		t.Fatal(err)
	}
	if got, err := weirwire.CountParts(raw); got != (weirwire.Parts{Actual: 2}) || err != nil {
		t.Errorf("of a settlement: got %+v, %v", got, err)
	}
}

// The JSON that is made of a node's message names who decided, as the node's own
// does.
func TestOwnerIsTold(t *testing.T) {
	a := weirwire.AnswerOf(&weirv1.CheckResponse{Limits: []*weirv1.LimitDecision{{Owner: "node-2"}}})
	if len(a.Limits) != 1 || a.Limits[0].Owner != "node-2" {
		t.Errorf("%+v", a)
	}
}
