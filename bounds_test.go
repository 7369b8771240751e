package weir_test

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/engine"
	"github.com/weirlimit/weir/limiter/table"
)

// membership is that of a cluster in which nothing is decided.
type membership struct {
	engine.Decider
	weir.Cluster
}

func (m membership) OpenMember(context.Context, *engine.Node) (engine.Decider, weir.Cluster, error) {
	return m, m, nil
}

func (membership) Close() error { return nil }

// A node on its own without a secret draws one when it is opened. Nodes that share
// counters must not draw one each.
func TestSecretIsDrawn(t *testing.T) {
	seeds := func(c weir.Config) []byte {
		t.Helper()
		c.Rules = []byte("rules:\n  - {name: a, limits: [5/second]}\n")
		n, err := weir.Open(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		return weir.Seeds(n)
	}
	secret := []byte("0123456789abcdef0123456789abcdef")
	for name, c := range map[string]struct {
		config func() weir.Config
		same   bool
	}{
		"alone":               {func() weir.Config { return weir.Config{} }, false},
		"alone with a secret": {func() weir.Config { return weir.Config{Secret: secret} }, true},
		"a member":            {func() weir.Config { return weir.Config{Cluster: membership{}} }, true},
		"a node with backend": {func() weir.Config {
			return weir.Config{Backend: &tableBackend{table: table.New(table.Config{})}}
		}, true},
		"a member, its secret": {func() weir.Config { return weir.Config{Cluster: membership{}, Secret: secret} }, true},
	} {
		one, two := seeds(c.config()), seeds(c.config())
		if len(one) == 0 || bytes.Equal(one, two) != c.same {
			t.Errorf("%s: the hashes of two nodes are keyed alike: %v", name, !c.same)
		}
	}
}

// A node keeps its counters in the memory that it is given, and each rule in its share
// of them, also of another file.
func TestNodeBounds(t *testing.T) {
	ctx := context.Background()
	if _, err := weir.Open(ctx, weir.Config{MaxBytes: 8<<20 - 1}); !errors.Is(err, weir.ErrInvalid) {
		t.Errorf("too little memory: %v", err)
	}
	file := func(share string) []byte {
		return []byte("rules:\n  - {name: a, key: [user], limits: [5/hour], max_share: " + share +
			", continue: true}\n  - {name: b, key: [path], limits: [5/hour]}\n")
	}
	n, err := weir.Open(ctx, weir.Config{Rules: file("10%"), MaxKeys: 100, MaxBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if s := n.Stats(); s.MaxBytes != 8<<20 {
		t.Errorf("%+v", s)
	}
	ask := func(from int) {
		for i := range 60 {
			var d weir.Decision
			r := weir.Request{Path: "/" + strconv.Itoa(from+i), User: strconv.Itoa(from + i)}
			if err := n.CheckInto(ctx, &r, &d); err != nil {
				t.Fatal(err)
			}
			if d.Limit(1).Overflow {
				t.Fatal("a rule has filled the table for another")
			}
		}
	}
	hold := func(want int64) {
		t.Helper()
		if s := n.Shares(); len(s) != 1 || s[0].Rule != "a" || s[0].Keys != want {
			t.Errorf("%d counters are to be in the share: %+v", want, s)
		}
	}
	ask(0)
	hold(10)
	if err := n.SetRules(file("30%")); err != nil {
		t.Fatal(err)
	}
	ask(100)
	hold(30)
	unbounded, err := weir.Open(ctx, weir.Config{MaxBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer unbounded.Close()
	if s := unbounded.Stats(); s.MaxBytes != 0 {
		t.Errorf("%+v", s)
	}
}
