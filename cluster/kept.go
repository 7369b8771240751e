package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/peer"
)

// Bounds of [Kept].
const (
	// MaxKept is the most bytes that are kept under one name.
	MaxKept = 4 << 20

	maxKeptNames = 8
	maxKeptName  = 64
	// firstKept is the key of the first name, among those of what the core saves.
	firstKept = 1<<13 + 1
)

// Kept is what a program keeps in the Store of a member beside counters: bytes under a few names, which are saved when
// they have changed and read at the start. Without a Store nothing is kept. One value is for one member; the zero value
// is ready for use. It is safe for concurrent use.
type Kept struct {
	mu  sync.Mutex
	all []*keptName
}

// keptName is what is kept under one name.
type keptName struct {
	name  string
	key   uint32
	bytes []byte                 // as saved last, or as read
	saved bool                   // the store has them
	now   func() ([]byte, error) // nil: what was read stays
}

// Restored returns what was read under a name when the member was opened, nil if there was nothing. The caller must not
// change it.
func (k *Kept) Restored(name string) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.find(name); n != nil {
		return n.bytes
	}
	return nil
}

// Keep has current asked for what is to be kept under a name, before each save, by one goroutine. It must not wait.
// With an error, or more than [MaxKept] bytes, what was kept stays, and the log says so. At most 8 names of up to 64
// bytes are possible; the error wraps [weir.ErrInvalid].
func (k *Kept) Keep(name string, current func() ([]byte, error)) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.find(name)
	if n == nil {
		if len(name) == 0 || len(name) > maxKeptName || len(k.all) == maxKeptNames {
			return fmt.Errorf("%w: %.80q cannot be kept: a name has 1 to %d bytes, and at most %d names are possible",
				weir.ErrInvalid, name, maxKeptName, maxKeptNames)
		}
		n = k.add(name, k.free())
	}
	n.now = current
	return nil
}

func (k *Kept) find(name string) *keptName {
	if i := slices.IndexFunc(k.all, func(n *keptName) bool { return n.name == name }); i >= 0 {
		return k.all[i]
	}
	return nil
}

func (k *Kept) add(name string, key uint32) *keptName {
	n := &keptName{name: name, key: key}
	k.all = append(k.all, n)
	return n
}

// free returns a key that no name has.
func (k *Kept) free() uint32 {
	key := uint32(firstKept)
	for slices.ContainsFunc(k.all, func(n *keptName) bool { return n.key == key }) {
		key++
	}
	return key
}

func (k *Kept) saveAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.all {
		n.saved = false
	}
}

// save appends what has changed, and what has one of the keys.
func (k *Kept) save(to *keeper, keys []uint32) error {
	k.mu.Lock()
	all := slices.Clone(k.all)
	k.mu.Unlock()
	for _, n := range all {
		k.mu.Lock()
		before, current := n.bytes, n.now
		k.mu.Unlock()
		now, err := before, error(nil)
		if current != nil {
			now, err = current() // without the lock: it may have locks of its own
		}
		if err == nil && len(now) > MaxKept {
			err = fmt.Errorf("%d bytes, and at most %d are kept", len(now), MaxKept)
		}
		if err != nil {
			to.tellKept(n.name, err)
			now = before
		}
		k.mu.Lock()
		due := !n.saved || !bytes.Equal(now, before) || slices.Contains(keys, n.key)
		n.bytes, n.saved = now, true
		k.mu.Unlock()
		if !due || now == nil {
			continue
		}
		data := append(binary.AppendUvarint(nil, uint64(len(n.name))), n.name...)
		if err := to.store.Append(&peer.Record{At: int64(to.now()), Data: append(data, now...),
			Keys: []peer.RecordKey{{Key: n.key, Replaces: true, Weight: uint32(1 + len(now))}}}); err != nil {
			return err
		}
	}
	return nil
}

var errKept = errors.New("what was kept under a name cannot be read")

// restore takes a record, if it is of what is kept.
func (k *Kept) restore(r *peer.Record) (taken bool, err error) {
	if len(r.Keys) != 1 || r.Keys[0].Key < firstKept || r.Keys[0].Key >= firstKept+maxKeptNames {
		return false, nil
	}
	n, used := binary.Uvarint(r.Data)
	if used <= 0 || n == 0 || n > maxKeptName || n > uint64(len(r.Data)-used) || len(r.Data) > MaxKept+100 {
		return true, errKept
	}
	name, text := string(r.Data[used:used+int(n)]), bytes.Clone(r.Data[used+int(n):])
	k.mu.Lock()
	defer k.mu.Unlock()
	key := r.Keys[0].Key
	k.all = slices.DeleteFunc(k.all, func(n *keptName) bool { return n.key == key && n.name != name && n.now == nil })
	x := k.find(name)
	if x == nil {
		if slices.ContainsFunc(k.all, func(n *keptName) bool { return n.key == key }) {
			key = k.free()
		}
		if key >= firstKept+maxKeptNames {
			return true, errKept
		}
		x = k.add(name, key)
	}
	x.bytes = text
	return true, nil
}

// tellKept logs, once a minute, that something is not kept.
func (k *keeper) tellKept(name string, err error) {
	if time.Since(k.keptTold) >= storeTellEvery {
		k.keptTold = time.Now()
		k.m.log.Error("what the program keeps in the data directory cannot be saved: what was saved before stays",
			"name", name, "error", err)
	}
}
