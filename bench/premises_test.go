package bench

import (
	"errors"
	"strings"
	"sync"
	"testing"
)

// TestContenders measures every contender for a moment, in every variant, with
// all that is asserted of a real run: each answer is the one that is due, each
// key is there and was charged as often as it was asked for, and nothing was
// allocated where nothing may be.
func TestContenders(t *testing.T) {
	keys := testKeys(t, 1000)
	const workers, passes = 2, 20
	for _, c := range Contenders() {
		for _, v := range []Variant{Admitted, Half} {
			if v == Half && c.Floor {
				continue
			}
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				s, err := MeasureSpeed(c, Setup{Keys: keys, Workers: workers, Variant: v}, passes)
				if err != nil {
					t.Fatal(err)
				}
				if want := keys.Len() * workers * passes; s.Checks != want || s.NanosPerCheck() <= 0 {
					t.Errorf("%d checks of %v ns, want %d", s.Checks, s.NanosPerCheck(), want)
				}
			})
		}
	}
}

// TestThreeWindows: a check of three windows charges three counters.
func TestThreeWindows(t *testing.T) {
	for _, name := range []string{"table/three_windows", "weir/three_windows"} {
		c, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		trial, err := NewTrial(c, Setup{Keys: testKeys(t, 100)})
		if err != nil {
			t.Fatal(err)
		}
		counters, perKey := trial.limiter.(interface{ Held() (int, int) }).Held()
		if counters != 300 || perKey != 3 {
			t.Errorf("%s: %d counters, %d for each key", name, counters, perKey)
		}
		if err := trial.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestLeft: every limiter that has keys tells those that it holds from others,
// and an exhausted one from a fresh one.
func TestLeft(t *testing.T) {
	keys := testKeys(t, 100)
	for _, c := range Contenders() {
		if c.Floor {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			l, err := c.New(keys)
			if err != nil {
				t.Fatal(err)
			}
			if _, held, err := l.Left(0); held || err != nil {
				t.Errorf("before the first check: held %v, error %v", held, err)
			}
			check := l.Worker(keys.Owned())
			for range 3 {
				if ok, err := check(1); !ok || err != nil {
					t.Errorf("allowed %v, error %v", ok, err)
				}
			}
			if left, held, err := l.Left(1); left != Limit-3 || !held || err != nil {
				t.Errorf("after three checks: %d left, held %v, error %v", left, held, err)
			}
			if err := l.Exhaust(2); err != nil {
				t.Error(err)
			}
			if left, held, err := l.Left(2); left != 0 || !held || err != nil {
				t.Errorf("exhausted: %d left, held %v, error %v", left, held, err)
			}
			if ok, err := check(2); ok || err != nil {
				t.Errorf("exhausted: allowed %v, error %v", ok, err)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// fake is a limiter with something wrong.
type fake struct {
	mu       sync.Mutex
	left     map[int]int
	key      func(n int) int            // which counter key n has
	answer   func(asked, left int) bool // what is answered
	charges  func(asked int) bool       // whether the check is charged
	failure  func(asked int) error      // the error of a check
	forgets  func(n int) bool           // whether a key is gone afterwards
	counters func(have int) (int, int)  // what is told of them
	wastes   bool                       // allocates
	asked    int                        // checks so far
	garbage  []*[100]byte               // of wastes
	exhaust  func(n int, f *fake) error // takes all
}

func newFake() *fake {
	return &fake{
		left:     make(map[int]int),
		key:      func(n int) int { return n },
		answer:   func(_, left int) bool { return left > 0 },
		charges:  func(int) bool { return true },
		failure:  func(int) error { return nil },
		forgets:  func(int) bool { return false },
		counters: func(have int) (int, int) { return have, 1 },
		exhaust:  func(n int, f *fake) error { f.left[f.key(n)] = 0; return nil },
	}
}

func (f *fake) Worker(*Joiner) Check {
	return func(n int) (bool, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.asked++
		k := f.key(n)
		if _, ok := f.left[k]; !ok {
			f.left[k] = Limit
		}
		allowed := f.answer(f.asked, f.left[k])
		if allowed && f.charges(f.asked) {
			f.left[k]--
		}
		if f.wastes {
			f.garbage = append(f.garbage[:0], new([100]byte))
		}
		return allowed, f.failure(f.asked)
	}
}

func (f *fake) Exhaust(n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.exhaust(n, f)
}

func (f *fake) Left(n int) (int, bool, error) {
	left, ok := f.left[f.key(n)]
	return left, ok && !f.forgets(n), nil
}

func (f *fake) Held() (counters, perKey int) { return f.counters(len(f.left)) }
func (f *fake) Close() error                 { return nil }

// TestPremisesBite: a limiter that does not do what it is measured for is an
// error and not a figure.
func TestPremisesBite(t *testing.T) {
	broken := errors.New("it is broken")
	for name, c := range map[string]struct {
		spoil   func(*fake)
		variant Variant
		says    string // empty: nothing is wrong
	}{
		"nothing is wrong":     {func(*fake) {}, Admitted, ""},
		"nor with half denied": {func(*fake) {}, Half, ""},
		"all keys are one":     {func(f *fake) { f.key = func(int) int { return 0 } }, Admitted, "was charged"},
		"two keys are one": {func(f *fake) {
			f.key = func(n int) int { return max(n, 1) }
		}, Admitted, "was charged"},
		"admits what is exhausted": {func(f *fake) {
			f.answer = func(int, int) bool { return true }
		}, Half, "allowed true, which should be false"},
		"denies for no reason": {func(f *fake) {
			f.answer = func(asked, _ int) bool { return asked != 4000 }
		}, Admitted, "allowed false, which should be true"},
		"denies from the beginning": {func(f *fake) {
			f.answer = func(int, int) bool { return false }
		}, Admitted, "filling in"},
		"does not charge": {func(f *fake) {
			f.charges = func(asked int) bool { return asked%2 == 0 }
		}, Admitted, "was charged"},
		"cannot be exhausted": {func(f *fake) {
			f.exhaust = func(int, *fake) error { return broken }
		}, Half, "exhausting key"},
		"fails": {func(f *fake) {
			f.failure = func(asked int) error { return failAfter(asked, 4000, broken) }
		}, Admitted, broken.Error()},
		"fails at once": {func(f *fake) {
			f.failure = func(int) error { return broken }
		}, Admitted, broken.Error()},
		"forgets a key": {func(f *fake) {
			f.forgets = func(n int) bool { return n == 77 }
		}, Admitted, "key 77: it is not there"},
		"holds more than the keys": {func(f *fake) {
			f.counters = func(have int) (int, int) { return have + 1, 1 }
		}, Admitted, "holds 201 counters"},
		"allocates": {func(f *fake) { f.wastes = true }, Admitted, "allocates 1."},
	} {
		t.Run(name, func(t *testing.T) {
			contender := Contender{Name: "fake", Free: true, New: func(*Keys) (Limiter, error) {
				f := newFake()
				c.spoil(f)
				return f, nil
			}}
			_, err := MeasureSpeed(contender, Setup{Keys: testKeys(t, 200), Workers: 2, Variant: c.variant}, 20)
			switch {
			case c.says == "" && err != nil:
				t.Error(err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("error %v, which should say %q", err, c.says)
			}
		})
	}
}

func failAfter(asked, after int, err error) error {
	if asked > after {
		return err
	}
	return nil
}

func TestBadSetups(t *testing.T) {
	keys := testKeys(t, 100)
	floor, err := Find("floor/counter")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewTrial(floor, Setup{Keys: keys, Variant: Half}); !errors.Is(err, errFloor) {
		t.Errorf("half of a floor's checks were denied: %v", err)
	}
	if _, err := NewTrial(floor, Setup{Keys: keys, Variant: "most"}); err == nil {
		t.Error("there is a variant called most")
	}
	for _, passes := range []int{0, Limit} {
		if _, err := MeasureSpeed(floor, Setup{Keys: keys}, passes); err == nil {
			t.Errorf("%d passes were possible", passes)
		}
	}
	broken := errors.New("it is broken")
	bad := Contender{Name: "bad", New: func(*Keys) (Limiter, error) { return nil, broken }}
	if _, err := NewTrial(bad, Setup{Keys: keys}); !errors.Is(err, broken) {
		t.Errorf("a limiter that cannot be made: %v", err)
	}
}

func TestSelect(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range Contenders() {
		if c.What == "" || names[c.Name] {
			t.Errorf("%q has no description, or is there twice", c.Name)
		}
		names[c.Name] = true
		if found, err := Find(c.Name); err != nil || found.Name != c.Name {
			t.Errorf("%q is not found: %v", c.Name, err)
		}
	}
	if got, err := Select("^weir/"); err != nil || len(got) != 8 {
		t.Errorf("%d contenders of weir's, error %v", len(got), err)
	}
	for _, pattern := range []string{"(", "nobody"} {
		if _, err := Select(pattern); err == nil {
			t.Errorf("%q selected something", pattern)
		}
	}
	if _, err := Find("nobody"); err == nil {
		t.Error("nobody was found")
	}
}
