package bench

import (
	"fmt"
	"math/rand/v2"
	"unsafe"
)

// KeyBytes is the length of every key: a path of 19 bytes and a user of 11.
const KeyBytes = pathBytes + 11

const (
	pathBytes = 19
	users     = 100
	// MaxKeys is how many keys there can be: 100,000 paths of 100 users.
	MaxKeys = 100_000 * users
)

// Keys is a set of distinct keys, each of a path and a user, as a front door
// has them. It is immutable and safe for concurrent use.
type Keys struct {
	paths, users []string
	order        []uint32
}

// NewKeys returns n keys, a multiple of 100 up to [MaxKeys]: n/100 paths of 100
// users each.
func NewKeys(n int) (*Keys, error) {
	if n < users || n > MaxKeys || n%users != 0 {
		return nil, fmt.Errorf("%d keys are not possible: give a multiple of %d up to %d", n, users, MaxKeys)
	}
	k := &Keys{order: make([]uint32, n)}
	for p := range n / users {
		k.paths = append(k.paths, fmt.Sprintf("/api/resource/%05d", p))
	}
	for u := range users {
		k.users = append(k.users, fmt.Sprintf("customer%03d", u))
	}
	for i := range k.order {
		k.order[i] = uint32(i)
	}
	r := rand.New(rand.NewPCG(uint64(n), 1))
	r.Shuffle(n, func(i, j int) { k.order[i], k.order[j] = k.order[j], k.order[i] })
	return k, nil
}

// Len returns the number of keys.
func (k *Keys) Len() int { return len(k.order) }

// Path and User return the parts of key n.
func (k *Keys) Path(n int) string { return k.paths[n/users] }

// User returns the user of key n.
func (k *Keys) User(n int) string { return k.users[n%users] }

// Joiner makes keys of one piece, for limiters that need one. It is for one
// goroutine.
type Joiner struct {
	keys *Keys
	own  bool
	buf  [KeyBytes]byte
}

// Owned returns a joiner whose keys may be kept: each is allocated.
func (k *Keys) Owned() *Joiner { return &Joiner{keys: k, own: true} }

// Scratch returns a joiner whose keys are good until the next: each lies in the
// same bytes, so that nothing is allocated and the key is in the cache, as it
// is for a front door that has just read it. This is as good as it gets for a
// limiter that takes strings. It must be used for keys that the limiter has
// already, since one that it does not have it would keep.
func (k *Keys) Scratch() *Joiner { return &Joiner{keys: k} }

// Join returns key n: its path, followed by its user.
func (j *Joiner) Join(n int) string {
	copy(j.buf[:pathBytes], j.keys.Path(n))
	copy(j.buf[pathBytes:], j.keys.User(n))
	if j.own {
		return string(j.buf[:])
	}
	return unsafe.String(&j.buf[0], KeyBytes)
}

// walk goes through all keys, over and over, in an order that looks random and
// so is of no help to the processor.
type walk struct {
	order []uint32
	at    int
}

// walkFrom returns the walk of worker w of several, each of which begins
// elsewhere.
func (k *Keys) walkFrom(w, workers int) walk {
	return walk{k.order, len(k.order) * w / workers}
}

func (w *walk) next() int {
	n := w.order[w.at]
	if w.at++; w.at == len(w.order) {
		w.at = 0
	}
	return int(n)
}
