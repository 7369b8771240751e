package bench

import "testing"

func testKeys(t testing.TB, n int) *Keys {
	t.Helper()
	k, err := NewKeys(n)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestKeysAreDistinct: a benchmark whose many keys are one and the same
// measures something else.
func TestKeysAreDistinct(t *testing.T) {
	keys := testKeys(t, 100_000)
	owned, scratch := keys.Owned(), keys.Scratch()
	seen := make(map[string]bool)
	for n := range keys.Len() {
		key := owned.Join(n)
		if len(key) != KeyBytes || key != keys.Path(n)+keys.User(n) || key != scratch.Join(n) {
			t.Fatalf("key %d is %q, of %q and %q", n, key, keys.Path(n), keys.User(n))
		}
		seen[key] = true
	}
	if len(seen) != keys.Len() {
		t.Errorf("%d of %d keys are distinct", len(seen), keys.Len())
	}
}

// TestHashesAreDistinct: so must those be that the table is given.
func TestHashesAreDistinct(t *testing.T) {
	hi, lo := make(map[uint64]bool), make(map[uint64]bool)
	const n = 100_000
	for i := range n {
		h := hashOf(i)
		hi[h.Hi], lo[h.Lo] = true, true
	}
	if len(hi) != n || len(lo) != n {
		t.Errorf("%d and %d of %d halves are distinct", len(hi), len(lo), n)
	}
}

func TestJoinersKeepOrReuse(t *testing.T) {
	keys := testKeys(t, 100)
	owned, scratch := keys.Owned(), keys.Scratch()
	a, b := owned.Join(1), scratch.Join(1)
	owned.Join(2)
	scratch.Join(2)
	if a != "/api/resource/00000customer001" {
		t.Errorf("an owned key became %q", a)
	}
	if b != "/api/resource/00000customer002" {
		t.Errorf("the scratch key is %q: it should lie where the next does", b)
	}
	if n := testing.AllocsPerRun(100, func() { scratch.Join(3) }); n != 0 {
		t.Errorf("a scratch key allocates %v times", n)
	}
}

func TestNumberOfKeys(t *testing.T) {
	for _, n := range []int{-100, 0, 50, 150, MaxKeys + 100} {
		if _, err := NewKeys(n); err == nil {
			t.Errorf("%d keys were possible", n)
		}
	}
}

// TestWalk: one pass meets every key once, whoever walks, in an order of no
// pattern.
func TestWalk(t *testing.T) {
	const n, workers = 1000, 3
	keys := testKeys(t, n)
	firsts := make(map[int]bool)
	for w := range workers {
		walk := keys.walkFrom(w, workers)
		var seen [n]int
		last, neighbours, odd := -1, 0, 0
		for i := range 2 * n {
			k := walk.next()
			if i == 0 {
				firsts[k] = true
			}
			if k == last+1 {
				neighbours++
			}
			if i < n/2 && exhausted(k) {
				odd++
			}
			seen[k]++
			last = k
		}
		for k, times := range seen {
			if times != 2 {
				t.Fatalf("two passes met key %d %d times", k, times)
			}
		}
		if neighbours > 20 {
			t.Errorf("%d of %d steps lead to the next key", neighbours, 2*n)
		}
		if odd < n/5 || odd > n*3/10 {
			t.Errorf("%d of the first %d keys are exhausted ones", odd, n/2)
		}
	}
	if len(firsts) != workers {
		t.Errorf("%d workers begin at %d places", workers, len(firsts))
	}
}
