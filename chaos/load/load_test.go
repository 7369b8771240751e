//go:build linux

package load

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/weirlimit/weir/chaos/history"
)

// What a client knows of a check: a key for which a node has no room was not counted,
// so its denial says nothing of a limit.
func TestRecord(t *testing.T) {
	for text, want := range map[string]history.Outcome{
		`{"allowed": true, "source": "owner", ` +
			`"limits": [{"owner": "node-1"}]}`: history.Allowed,
		`{"allowed": false, "source": "owner", "limits": ` +
			`[{"owner": "node-1", "retry_after_ms": 5}]}`: history.Denied,
		`{"allowed": false, "source": "owner", "limits": ` +
			`[{"owner": "node-1"}, {"overflow": true}]}`: history.Refused,
		`{"allowed": true, "source": "owner", "limits": [{"owner": ` +
			`"node-1", "overflow": true, "remaining": 10}]}`: history.Refused,
	} {
		var a answer
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		var op history.Op
		if record(&op, a, nil); op.Outcome != want || (op.Says == history.NoRoom) != (want == history.Refused) ||
			len(op.Owners) == 0 || op.Owners[0] != "node-1" {
			t.Errorf("%s is recorded as %+v, want %s", text, op, want)
		}
	}
	var op history.Op
	if record(&op, answer{}, refusal("gone")); op.Outcome != history.Refused {
		t.Errorf("what was refused is %s", op.Outcome)
	}
	if record(&op, answer{}, errors.New("no answer")); op.Outcome != history.Unknown {
		t.Errorf("what was not answered is %s", op.Outcome)
	}
}

// What checks of several keys have as address is one, and another for each key.
func TestAddresses(t *testing.T) {
	seen := map[netip.Prefix]bool{}
	p := newPlan([]history.Rule{{Name: "several", Several: true}}, "kill-1")
	rng := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		at, err := netip.ParseAddr(p.pick(rng).question.IP)
		if err != nil {
			t.Fatal(err)
		}
		seen[netip.PrefixFrom(at, 64).Masked()] = true
	}
	if len(seen) != keysPerRule {
		t.Errorf("%d networks of %d keys", len(seen), keysPerRule)
	}
}
