package cluster

import (
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// slowDisk keeps what it is to call when a promise lasts.
type slowDisk struct{ kept []func() }

func (d *slowDisk) Keep(_ peer.Answer, kept func()) { d.kept = append(d.kept, kept) }

// A grant of a closed partition is sent when the disk has it; an answer that grants nothing is sent at once.
func TestAGrantLeavesWhenItLasts(t *testing.T) {
	c, p, _, _ := single(t, limiter.UnreachableClosed)
	disk := new(slowDisk)
	c.config.Promises = disk
	claim := func(from peer.Instance, counter uint64) *peer.Frame {
		c.Deliver(&peer.Frame{From: from, To: self, Claims: []peer.Claim{
			{Partition: p.id, Kind: peer.Renew, Round: 1, Counter: counter, For: from},
		}})
		return drain(c)[from]
	}
	answers := func(f *peer.Frame) int {
		if f == nil {
			return 0
		}
		return len(f.Answers)
	}
	if n := answers(claim(other, 5)); n != 0 || len(disk.kept) != 1 {
		t.Fatalf("before the grant lasts %d answers are sent, %d are being kept", n, len(disk.kept))
	}
	if n := answers(claim(third, 4)); n != 1 {
		t.Errorf("a refusal waits: %d answers", n)
	}
	disk.kept[0]()
	if a := lastAnswer(t, drain(c)[other]); !a.Granted || a.Grant != 5 {
		t.Errorf("when the grant lasts: %+v", a)
	}
}
