package route

import (
	"testing"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// saying is a node whose requests all end with a verdict.
type saying struct {
	Node
	verdict Verdict
}

func (s saying) Handle(*Request, *limiter.Decision, *limiter.Decision) (Verdict, uint16) {
	return s.verdict, NoPartition
}

// TestACallThatThisNodeLeavesIsRoutedAgain: this node is asked as owner or as heir, and does
// not decide. It keeps the call in two cases, and else routes it again.
func TestACallThatThisNodeLeavesIsRoutedAgain(t *testing.T) {
	for v, again := range map[Verdict]bool{Withheld: false, Kept: false, NotOwner: true, Overloaded: true, AtGiver: true} {
		for as, run := range map[string]func(*Call, *Turn){
			"owner": (*Call).here,
			"heir":  func(o *Call, t *Turn) { o.asHeir(t, true) },
		} {
			o := &Call{c: &Router{}, task: task{charge: &arith.Charge{}}}
			run(o, &Turn{Now: limiter.Second, Node: saying{verdict: v}})
			if got := o.progress.again > limiter.Second; got != again {
				t.Errorf("as %s, with the verdict %d, it is routed again: %t", as, v, got)
			}
		}
	}
}
