package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

// remember puts a path until the cache has it, and returns how often that took.
func remember(c *pathCache, path string, list []uint16) int {
	for n := range 3 {
		if e, _ := c.get(path); e != nil {
			return n
		}
		_, h := c.get(path)
		c.put(path, h, list)
	}
	return 3
}

func TestCacheSizes(t *testing.T) {
	for entries, want := range map[int]int{0: 8192, 1: 8, 4: 8, 5: 8, 100: 128, 8192: 8192, 1 << 30: 1 << 20} {
		if got := len(newPathCache(entries).sets) * cacheWays; got != want {
			t.Errorf("asked for %d entries, got %d, want %d", entries, got, want)
		}
	}
	if newPathCache(-1) != nil {
		t.Error("a cache that was turned off")
	}
	if size := unsafe.Sizeof(cached{}); size > 64 {
		t.Errorf("an entry has %d bytes , more than one cache line", size)
	}
}

// Whatever is put, what comes back belongs to the path.
func TestCacheReturnsWhatWasPut(t *testing.T) {
	c := newPathCache(64)
	for i := range 1000 {
		path := fmt.Sprintf("/p%d", i)
		if n := remember(c, path, []uint16{uint16(i)}); n > 2 {
			t.Fatalf("%s is not remembered when it is seen for the second time", path)
		}
		for j := range i {
			if e, _ := c.get(fmt.Sprintf("/p%d", j)); e != nil && !slices.Equal(e.rules, []uint16{uint16(j)}) {
				t.Fatalf("path %d has rules %v", j, e.rules)
			}
		}
	}
}

// An entry owns its memory: neither the path nor the list that it was made from
// matter any more.
func TestCacheKeepsCopies(t *testing.T) {
	c := newPathCache(64)
	buf := []byte("/path")
	list := []uint16{1, 2, 3, 4, 5, 6, 7, 8, 9}
	remember(c, unsafe.String(&buf[0], len(buf)), list)
	buf[1], list[0] = 'x', 99
	e, _ := c.get("/path")
	if e == nil || e.path != "/path" || !slices.Equal(e.rules, []uint16{1, 2, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("the entry is %+v", e)
	}
}

// A flood of paths that are asked for once drives out nothing, once the cache
// is full, and costs no memory.
func TestCacheWithstandsFlood(t *testing.T) {
	c := newPathCache(256)
	for i := range 10_000 { // fill every set
		path := fmt.Sprintf("/fill%d", i)
		_, h := c.get(path)
		c.put(path, h, nil)
	}
	before := make(map[*cached]bool)
	for i := range c.sets {
		for j := range c.sets[i] {
			before[c.sets[i][j].Load()] = true
		}
	}
	if before[nil] || len(before) != 256 {
		t.Fatalf("%d entries", len(before))
	}
	path := []byte("/flood00000000")
	allocs := testing.AllocsPerRun(10_000, func() {
		for i := len(path) - 1; ; i-- { // the next number
			if path[i]++; path[i] <= '9' {
				break
			}
			path[i] = '0'
		}
		p := unsafe.String(&path[0], len(path))
		_, h := c.get(p)
		c.put(p, h, nil)
	})
	kept := 0
	for i := range c.sets {
		for j := range c.sets[i] {
			if before[c.sets[i][j].Load()] {
				kept++
			}
		}
	}
	if allocs != 0 || kept < 250 {
		t.Errorf("%v allocations a path, %d of 256 entries kept", allocs, kept)
	}
}

func TestCacheBounds(t *testing.T) {
	c := newPathCache(64)
	if n := remember(c, strings.Repeat("x", maxCachedPath+1), nil); n != 3 {
		t.Error("a path that is too long is remembered")
	}
	if n := remember(c, "/x", make([]uint16, maxCachedRules+1)); n != 3 {
		t.Error("a list that is too long is remembered")
	}
	if n := remember(c, strings.Repeat("x", maxCachedPath), make([]uint16, maxCachedRules)); n != 1 {
		t.Errorf("a path at the bounds took %d times", n)
	}
}

func BenchmarkPathCache(b *testing.B) {
	c := newPathCache(0)
	paths := make([]string, 1024)
	for i := range paths {
		paths[i] = fmt.Sprintf("/api/v1/service%04d/resource/%02d", i, i%100)[:30]
		remember(c, paths[i], []uint16{1})
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if e, _ := c.get(paths[i&1023]); e == nil {
			b.Fatal("a path is not in the cache")
		}
	}
}
