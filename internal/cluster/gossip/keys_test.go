package gossip

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// keysOf returns keys that each repeat one byte.
func keysOf(n []byte) (out [][]byte) {
	for _, b := range n {
		out = append(out, key(b))
	}
	return out
}

func TestSetKeysOnARing(t *testing.T) {
	for _, c := range []struct{ from, to []byte }{
		{[]byte{1}, []byte{1, 2}}, {[]byte{1, 2}, []byte{2, 1}}, {[]byte{2, 1}, []byte{2}}, {[]byte{1}, []byte{2}},
		{[]byte{1, 2, 3}, []byte{1, 3}}, {[]byte{1, 2, 3, 4}, []byte{4, 2}},
		{[]byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte{11, 12, 13, 14, 15, 16, 17, 18}},
		{[]byte{1, 2, 3, 4, 5, 6, 7, 8}, []byte{8, 1, 7, 2, 11, 12}},
	} {
		ring := new(keyring)
		if err := ring.set(keysOf(c.from)); err != nil {
			t.Fatal(err)
		}
		if err := ring.set(keysOf(c.to)); err != nil {
			t.Fatal(err)
		}
		got := ring.GetKeys()
		if len(got) != len(c.to) || !bytes.Equal(got[0], key(c.to[0])) {
			t.Errorf("%v to %v: %d keys, the first %d", c.from, c.to, len(got), got[0][0])
		}
		for _, b := range c.to {
			if !strings.Contains(fmt.Sprint(got), fmt.Sprintf("%v", key(b))) {
				t.Errorf("%v to %v: key %d is missing", c.from, c.to, b)
			}
		}
	}
}

// Readers use a ring's slice without a lock while keys are changed. A key that stays
// must never be missing, no key may be there twice, and nothing may be written where
// they read, which the race detector checks.
func TestKeysChangeUnderReaders(t *testing.T) {
	ring := new(keyring)
	steps := [][]byte{{1, 2, 3}, {1, 3}, {3, 4, 1}, {1, 5, 3}, {3, 1}, {6, 7, 1, 3}, {1, 3, 2}}
	if err := ring.set(keysOf(steps[0])); err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			var have []byte
			for _, k := range ring.GetKeys() {
				have = append(have, k[0])
			}
			sorted := slices.Sorted(slices.Values(have))
			if len(slices.Compact(sorted)) != len(have) || !slices.Contains(have, 1) || !slices.Contains(have, 3) {
				t.Errorf("a reader finds the keys %v: one is missing or there twice", have)
				return
			}
		}
	}()
	for range 3000 {
		for _, s := range steps {
			if err := ring.set(keysOf(s)); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	<-done
}

// The mark differs between secrets and between clusters, is 0 without a secret, and is
// the same in all versions.
func TestSecretMark(t *testing.T) {
	if got := SecretMark(nil, "weir"); got != 0 {
		t.Errorf("no secret has the mark %x", got)
	}
	const golden = 0x7c843064e6c9fbf1
	mark := SecretMark([]byte("one"), "weir")
	if mark != golden {
		t.Errorf("the mark is %#x, and was %#x", mark, uint64(golden))
	}
	for _, other := range []uint64{SecretMark([]byte("two"), "weir"), SecretMark([]byte("one"), "weir2")} {
		if other == mark || other == 0 {
			t.Errorf("another secret, or cluster, has the mark %#x, as the first", other)
		}
	}
}
