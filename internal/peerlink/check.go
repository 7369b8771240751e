package peerlink

import (
	"fmt"

	"github.com/weirlimit/weir/internal/peer"
)

// check returns an error if the parts of a received frame do not fit together: counts
// that do not add up, or indices out of range. The receiver of the frame checks the
// meaning of its numbers, such as whether a partition exists.
func check(f *peer.Frame) error {
	keys := 0
	for i := range f.Checks {
		keys += int(f.Checks[i].Keys)
	}
	for i := range f.Refunds {
		keys += int(f.Refunds[i].Keys)
	}
	if keys != len(f.Keys) {
		return fmt.Errorf("checks and refunds have %d keys, and the frame %d", keys, len(f.Keys))
	}
	if len(f.Traces) > len(f.Checks) {
		return fmt.Errorf("%d traces are more than the frame has checks: %d", len(f.Traces), len(f.Checks))
	}
	if len(f.Holds) > len(f.Checks)+len(f.Refunds) {
		return fmt.Errorf("%d holds are more than the frame has checks and refunds: %d", len(f.Holds),
			len(f.Checks)+len(f.Refunds))
	}
	if len(f.Amended) > len(f.Replies) {
		return fmt.Errorf("%d results of amendments are more than the frame has replies: %d", len(f.Amended), len(f.Replies))
	}
	for i := range f.Keys {
		if int(f.Keys[i].Rule) >= len(f.Rules) {
			return fmt.Errorf("key %d is of rule %d, and the frame has %d", i, f.Keys[i].Rule, len(f.Rules))
		}
	}
	if err := checkEntries(f); err != nil {
		return err
	}
	return checkReplies(f)
}

func checkEntries(f *peer.Frame) error {
	var want, ids, have uint64
	for i := range f.Batches {
		want += uint64(f.Batches[i].Keys)
		ids += uint64(f.Batches[i].IDs)
	}
	if ids != uint64(len(f.IDs)) {
		return fmt.Errorf("batches have %d ids, and the frame %d", ids, len(f.IDs))
	}
	for i := range f.Entries {
		e := &f.Entries[i]
		if e.First {
			have++
		} else if i == 0 {
			return fmt.Errorf("the first of %d entries does not begin a key", len(f.Entries))
		}
		if !e.Gone && int(e.Limit) >= len(f.Limits) {
			return fmt.Errorf("entry %d is of limit %d, and the frame has %d", i, e.Limit, len(f.Limits))
		}
	}
	if want != have {
		return fmt.Errorf("batches have %d keys, and the entries %d", want, have)
	}
	return nil
}

func checkReplies(f *peer.Frame) error {
	results := 0
	for i := range f.Replies {
		r := &f.Replies[i]
		results += int(r.Results)
		if r.Idle {
			results += int(r.Results)
		}
		for _, rule := range r.Rules {
			if int(rule) >= len(f.Rules) {
				return fmt.Errorf("reply %d names rule %d, and the frame has %d", i, rule, len(f.Rules))
			}
		}
	}
	if results != len(f.Results) {
		return fmt.Errorf("replies have %d results, and the frame %d", results, len(f.Results))
	}
	return nil
}
