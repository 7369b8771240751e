package history

import (
	"errors"
	"fmt"
)

// ErrFaultUnseen is among the violations of a run of which nothing shows that what was to
// be broken was. It says nothing of the nodes, and the run shows nothing of them.
var ErrFaultUnseen = errors.New("the fault is not seen to have happened")

// SourcePolicy stands for all sources of answers by a policy.
const SourcePolicy = "policy"

// Down is a time in which a node was not to answer.
type Down struct {
	Node int    `json:"node"`
	How  string `json:"how"`
	// Told is when it was about to be brought to that: it may refuse from then on.
	Told  Micros `json:"told"`
	From  Micros `json:"from"`
	Until Micros `json:"until"`
}

// Start is when a node was about to be started, for which run.
type Start struct {
	Node int    `json:"node"`
	Run  int    `json:"run"`
	At   Micros `json:"at"`
}

// leastDown is how long a node must be down for its clients to notice for certain:
// each has a few, who ask again within milliseconds.
const leastDown Micros = 200_000

// FaultsSeen returns why the run's faults may not have happened: a node answered what it was
// asked while it was killed or paused, or nobody asked it; it did
// not start again, or join and decide anything; no answer came from a source
// that was to answer; or whoever broke something saw no effect.
func (c judges) FaultsSeen() (out []error) {
	for _, d := range c.Downs {
		asked := 0
		for i := range c.Ops {
			o := &c.Ops[i]
			if o.Node != d.Node || o.Return < d.From || o.Call > d.Until {
				continue
			}
			asked++
			if (o.Outcome == Allowed || o.Outcome == Denied) && o.Call > d.From && o.Return < d.Until {
				out = append(out, fmt.Errorf("%w: node-%d was %s at %v and answered at %v what it was asked at %v, before it "+
					"went on at %v",
					ErrFaultUnseen, d.Node+1, d.How, d.From.Duration(), o.Return.Duration(), o.Call.Duration(), d.Until.Duration()))
				break
			}
		}
		if asked == 0 && d.Until-d.From >= leastDown {
			out = append(out, fmt.Errorf("%w: nobody asked node-%d from %v to %v, when it was %s",
				ErrFaultUnseen, d.Node+1, d.From.Duration(), d.Until.Duration(), d.How))
		}
	}
	out = append(out, c.cameBack()...)
	for _, source := range c.Wants {
		if !c.saw(source) {
			out = append(out, fmt.Errorf("%w: no answer is from the source %q", ErrFaultUnseen, source))
		}
	}
	for _, doubt := range c.Doubts {
		out = append(out, fmt.Errorf("%w: %s", ErrFaultUnseen, doubt))
	}
	return out
}

// saw tells whether an answer came from a source.
func (h *History) saw(source string) bool {
	for i := range h.Ops {
		if o := &h.Ops[i]; source == SourcePolicy && o.ByPolicy() || source != "" && o.Source == source {
			return true
		}
	}
	return false
}

// cameBack returns why nodes that were to be started again, or to join, may not have:
// nobody got an answer of a later run, or of theirs.
func (c judges) cameBack() (out []error) {
	if len(c.Faults) == 0 {
		return nil
	}
	at := c.Faults[0].At
	before, after := make(map[int]int), make(map[int]int)
	decided := make(map[string]bool)
	for i := range c.Ops {
		o := &c.Ops[i]
		if o.Call < at {
			before[o.Node] = max(before[o.Node], o.Run)
		} else if o.Outcome == Allowed || o.Outcome == Denied {
			after[o.Node] = max(after[o.Node], o.Run)
			for _, owner := range o.Owners {
				decided[owner] = true
			}
		}
	}
	for _, n := range c.Again {
		if after[n] <= before[n] {
			out = append(out, fmt.Errorf("%w: node-%d was to start again, and answered nothing in a later run than %d",
				ErrFaultUnseen, n+1, before[n]))
		}
	}
	for _, n := range c.Joins {
		if name := fmt.Sprintf("node-%d", n+1); !decided[name] {
			out = append(out, fmt.Errorf("%w: %s was to join, and decided nothing", ErrFaultUnseen, name))
		}
	}
	return out
}
