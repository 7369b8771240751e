package members

import (
	"errors"
	"fmt"
	"testing"

	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// expel has an operator throw a member out at a registry.
func expel(t *testing.T, r *Registry, name string, back bool, now limiter.Tick) peer.Expulsion {
	t.Helper()
	news, err := r.Expel(name, back, now)
	if err != nil {
		t.Fatal(err)
	}
	return news[0]
}

// TestExpelled: a member that is expelled counts no more and cannot be met, whatever is
// said of it, and its instances are banned, until it is let in again.
func TestExpelled(t *testing.T) {
	r := NewRegistry("")
	r.Set([]peer.Member{{Name: "a", Instance: 1, State: peer.Active}, {Name: "m", Instance: 9, State: peer.Active}}, nil,
		10)
	r.Hear(9, []peer.Known{{Name: "m", Instance: 9}}, 0, 10)
	expel(t, r, "m", false, 20)
	r.Hear(1, []peer.Known{{Name: "m", Instance: 9}, {Name: "m", Instance: 10}}, 0, 30)
	known, _ := r.Set([]peer.Member{{Name: "a", Instance: 1, State: peer.Active}}, nil, 30)
	if known != 1 || r.Met("m", 9) || r.Counts("m") || len(r.Dead()) > 0 || !r.Banned(9) || !r.Banned(10) || r.Banned(1) {
		t.Errorf("an expelled member counts: %d, dead %v, banned %v %v", known, r.Dead(), r.Banned(9), r.Banned(10))
	}
	expel(t, r, "m", true, 40)
	if r.Expelled("m") || r.Banned(9) {
		t.Error("it is let in again and still expelled")
	}
	if known, _ = r.Set([]peer.Member{{Name: "a", Instance: 1}, {Name: "m", Instance: 10}}, nil, 50); known != 2 {
		t.Errorf("it is back, and %d count", known)
	}
}

// TestExpulsionsSpread: a word goes from member to member, to one that starts anew too, and the
// later of two counts.
func TestExpulsionsSpread(t *testing.T) {
	first, second, third := NewRegistry(""), NewRegistry(""), NewRegistry("")
	word := expel(t, first, "m", false, 20)
	news := second.HearExpelled("b", "a", []peer.Expulsion{word}, 30)
	if len(news) != 1 || !second.Expelled("m") || len(second.HearExpelled("b", "a", []peer.Expulsion{word}, 30)) != 0 {
		t.Fatalf("the word is not heard once: %v", news)
	}
	if third.HearExpelled("c", "b", second.Expulsions(), 40); !third.Expelled("m") {
		t.Error("who starts anew does not hear of it")
	}
	first.HearExpelled("a", "b", []peer.Expulsion{expel(t, second, "m", true, 50)}, 50)
	if first.Expelled("m") {
		t.Error("it is not let in again")
	}
	if first.HearExpelled("a", "c", third.Expulsions(), 60); first.Expelled("m") {
		t.Error("an older word is in force again")
	}
}

// TestWordsOfTheExpelled: what a member says of others ends with it, by whatever way it came; it
// cannot let itself in again, and nobody expels this node at itself.
func TestWordsOfTheExpelled(t *testing.T) {
	r := NewRegistry("")
	r.HearExpelled("a", "m", []peer.Expulsion{{Name: "b", Number: 5}}, 10)
	r.HearExpelled("a", "c", []peer.Expulsion{{Name: "d", Number: 5, Path: []string{"m", "e"}}}, 10)
	if !r.Expelled("b") || !r.Expelled("d") {
		t.Fatal("a member is not believed")
	}
	expel(t, r, "m", false, 20)
	if r.Expelled("b") || r.Expelled("d") {
		t.Error("what the expelled member said of others is in force")
	}
	for name, e := range map[string]peer.Expulsion{
		"it lets itself in":          {Name: "m", Number: 30, Back: true, Path: []string{"m", "e"}},
		"it expels another":          {Name: "b", Number: 30, Path: []string{"m"}},
		"it expels this node":        {Name: "a", Number: 30, Path: []string{"e"}},
		"the word is of the future":  {Name: "b", Number: 1 << 62},
		"the way is too long":        {Name: "b", Number: 30, Path: make([]string, maxPath)},
		"the name cannot be a name":  {Name: "b\n", Number: 30},
		"the way has no names at it": {Name: "b", Number: 30, Path: []string{""}},
	} {
		if news := r.HearExpelled("a", "c", []peer.Expulsion{e}, 40); len(news) > 0 || !r.Expelled("m") || r.Expelled("a") ||
			r.Expelled("b") {
			t.Errorf("%s: %v", name, news)
		}
	}
}

// TestOperatorsWordsReturn: a hostile member lets in one that the operator threw out. Once it is expelled itself the
// operator's word is in force again, there and at other members, and what the former said is not.
func TestOperatorsWordsReturn(t *testing.T) {
	r, other := NewRegistry(""), NewRegistry("")
	word := expel(t, r, "m", false, 20)
	other.HearExpelled("b", "a", []peer.Expulsion{word}, 20)
	for _, to := range []*Registry{r, other} {
		if to.HearExpelled("", "n", []peer.Expulsion{{Name: "m", Number: 30, Back: true}}, 30); to.Expelled("m") {
			t.Fatal("a member is not believed")
		}
		to.HearExpelled("", "m", []peer.Expulsion{{Name: "c", Number: 31}}, 31)
	}
	news, err := r.Expel("n", false, 40)
	if err != nil || len(news) != 2 {
		t.Fatal(news, err)
	}
	if told := other.HearExpelled("b", "a", news, 40); len(told) != 2 {
		t.Errorf("told on: %v", told)
	}
	for _, to := range []*Registry{r, other} {
		to.HearExpelled("", "m", []peer.Expulsion{{Name: "n", Number: 50, Back: true}}, 50)
		if !to.Expelled("m") || !to.Expelled("n") || to.Expelled("c") {
			t.Errorf("in force: %v", to.Expulsions())
		}
	}
	if expel(t, r, "m", true, 60); r.Expelled("m") {
		t.Error("the operator cannot let it in again")
	}
	r.HearExpelled("", "o", []peer.Expulsion{{Name: "m", Number: 70}}, 70)
	if expel(t, r, "o", false, 80); r.Expelled("m") {
		t.Error("what the operator has taken back is in force again")
	}
}

// TestExpelledAreBounded: what one member says fills no more than its part of the list, and what
// all others say leaves room for this node's own operator.
func TestExpelledAreBounded(t *testing.T) {
	r := NewRegistry("")
	for _, by := range []string{"b", "c", "d", "e", "f"} {
		for i := range 2 * maxExpelledBy {
			r.HearExpelled("a", by, []peer.Expulsion{{Name: fmt.Sprint(by, i), Number: 5}}, 10)
		}
		if n := len(r.Expulsions()); by == "b" && n != maxExpelledBy || n > maxExpelled {
			t.Errorf("%d are remembered", n)
		}
	}
	for i := range maxExpelled {
		expel(t, r, fmt.Sprint("m", i), false, 20)
	}
	if _, err := r.Expel("n", false, 20); !errors.Is(err, ErrExpelledFull) || !errors.Is(err, limiter.ErrInvalid) {
		t.Error(err)
	}
	expel(t, r, "m7", true, 30)
	expel(t, r, "n", false, 30)
	if len(r.Expulsions()) != maxExpelled || !r.Expelled("n") {
		t.Error("one that was let in again makes no room")
	}
}
