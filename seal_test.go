package weir

import (
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/limitertest"
)

func charge(hashes ...uint64) *arith.Charge { return costing(1, new(limiter.Rule), hashes...) }

// costing returns a charge of one rule.
func costing(cost uint64, r *limiter.Rule, hashes ...uint64) *arith.Charge {
	c := new(arith.Charge)
	for _, h := range hashes {
		c.Add(arith.Key{Hash: arith.Hash{Hi: h, Lo: ^h}, Cost: cost, Rule: r})
	}
	return c
}

// A receipt comes back as it was sealed, with a number of its own.
func TestSealed(t *testing.T) {
	k := newSealKey([]byte("secret"), "k", "a")
	r := arith.NewReceipt(arith.ReceiptFields{Epoch: 1 << 63, Time: 1_767_355_200_000_001, Charged: 5, Set: 1<<64 - 1})
	seen := map[uint64]bool{}
	for range 100 {
		text := k.seal(r, charge(1, 2))
		if len(text) > 128 || strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			t.Fatal(text)
		}
		got, err := k.open(text, charge(1, 2))
		if err != nil || arith.Fields(&got).Once == 0 || seen[arith.Fields(&got).Once] {
			t.Fatalf("%+v, %v", got, err)
		}
		seen[arith.Fields(&got).Once] = true
		if arith.Fields(&got).Once = 0; got != r {
			t.Fatalf("%+v", got)
		}
	}
}

// Nothing else opens: not with another byte, of another request, with another key, or made
// of nothing.
func TestForged(t *testing.T) {
	k := newSealKey([]byte("secret"), "k", "a")
	text := k.seal(arith.NewReceipt(arith.ReceiptFields{Time: 1, Charged: 1, Set: 1}), charge(1, 2))
	refused := func(what string, k sealKey, text string, c *arith.Charge) {
		t.Helper()
		if got, err := k.open(text, c); !errors.Is(err, limiter.ErrInvalid) || got != (limiter.Receipt{}) {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(raw) {
		raw[i/8] ^= 1 << (i % 8)
		refused("a bit changed", k, base64.RawURLEncoding.EncodeToString(raw), charge(1, 2))
		raw[i/8] ^= 1 << (i % 8)
	}
	for _, c := range []*arith.Charge{charge(), charge(1), charge(2, 1), charge(1, 2, 3), charge(1, 3)} {
		refused("another request", k, text, c)
	}
	for _, other := range []sealKey{newSealKey([]byte("secret"), "k", "b"),
		newSealKey([]byte("other"), "k", "a"), newSealKey([]byte("secret"), "l", "a"), randomSealKey(), {}} {
		refused("another key", other, text, charge(1, 2))
	}
	for _, wrong := range []string{"", text[1:], text + "A", text[:len(text)-1] + "=", strings.Repeat("A", len(text)),
		strings.Repeat("x", 1<<20), text[:len(text)-1] + "\n"} {
		refused("another text", k, wrong, charge(1, 2))
	}
}

// A receipt opens only for the cost and the limits of its check: a limit that counts in
// another way is another one, whatever its name.
func TestLimitsOfReceipts(t *testing.T) {
	k := newSealKey([]byte("secret"), "k", "a")
	rule := func(specs ...limiter.Spec) *limiter.Rule {
		r := new(limiter.Rule)
		for _, s := range specs {
			l := limitertest.Limit(t, s)
			r.Limits = append(r.Limits, l)
		}
		return r
	}
	minute := limiter.Spec{Name: "a", Limit: 10, Window: time.Minute}
	day := limiter.Spec{Name: "b", Limit: 10, Calendar: limiter.CalendarDay, Zone: "Asia/Tokyo"}
	text := k.seal(arith.NewReceipt(arith.ReceiptFields{Time: 1, Charged: 1, Set: 1}), costing(2, rule(minute, day), 1))
	if _, err := k.open(text, costing(2, rule(minute, day), 1)); err != nil { // rules read anew
		t.Error(err)
	}
	wide := k.seal(arith.NewReceipt(arith.ReceiptFields{Time: 1, Charged: 1, Set: 1}), costing(1<<40+2, rule(minute), 1))
	for _, cost := range []uint64{1<<40 + 2, 2, 1<<41 + 2, 1<<40 + 3} {
		if _, err := k.open(wide, costing(cost, rule(minute), 1)); (err == nil) != (cost == 1<<40+2) {
			t.Errorf("a receipt for %d opens for %d: %v", uint64(1<<40+2), cost, err)
		}
	}
	longer, more, elsewhere := minute, minute, day
	longer.Window, more.Limit, elsewhere.Zone = time.Hour, 11, "UTC"
	for what, c := range map[string]*arith.Charge{
		"cost":   costing(3, rule(minute, day), 1),
		"wide":   costing(1<<32+2, rule(minute, day), 1),
		"window": costing(2, rule(longer, day), 1),
		"limit":  costing(2, rule(more, day), 1),
		"zone":   costing(2, rule(minute, elsewhere), 1),
		"order":  costing(2, rule(day, minute), 1),
		"fewer":  costing(2, rule(minute), 1),
	} {
		if _, err := k.open(text, c); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("another %s: %v", what, err)
		}
	}
}

// A receipt of several owners comes back as it was sealed, within its bound, and nothing
// else opens.
func TestSealedParts(t *testing.T) {
	k := newSealKey([]byte("secret"), "k", "a")
	c := new(arith.Charge)
	var parts arith.ReceiptParts
	for i := range limiter.MaxKeys {
		c.Add(arith.Key{Hash: arith.Hash{Hi: uint64(i), Lo: 1}, Cost: 1, Rule: new(limiter.Rule)})
		parts = append(parts, arith.ReceiptPart{Keys: 1 << i, Epoch: 1<<63 + uint64(i), Time: limiter.Tick(i), Charged: 1,
			Set: ^uint64(i)})
		r := arith.NewReceipt(arith.ReceiptFields{Time: 7, Charged: 3, Set: 9, Parts: &parts})
		text := k.seal(r, c)
		if len(text) > 800 {
			t.Fatalf("%d parts: %d characters", len(parts), len(text))
		}
		got, err := k.open(text, c)
		f := arith.Fields(&got)
		if err != nil || f.Once == 0 || f.Parts == nil || !slices.Equal(*f.Parts, parts) || f.Time != 7 ||
			arith.Fields(&got).Charged != 3 || arith.Fields(&got).Set != 9 || arith.Fields(&got).Epoch != 0 {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	text := k.seal(arith.NewReceipt(arith.ReceiptFields{Charged: 1, Parts: &parts}), c)
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(raw) {
		raw[i/8] ^= 1 << (i % 8)
		if got, err := k.open(base64.RawURLEncoding.EncodeToString(raw), c); !errors.Is(err, limiter.ErrInvalid) ||
			got != (limiter.Receipt{}) {
			t.Fatalf("bit %d: %+v, %v", i, got, err)
		}
		raw[i/8] ^= 1 << (i % 8)
	}
	for n := range raw {
		if _, err := k.open(base64.RawURLEncoding.EncodeToString(raw[:n]), c); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("%d bytes of it: %v", n, err)
		}
	}
	if text := k.seal(arith.NewReceipt(arith.ReceiptFields{Charged: 1, Parts: &arith.ReceiptParts{}}), c); text != "" {
		t.Errorf("without parts: %s", text)
	}
}
