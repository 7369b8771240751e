package gossip

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/hashicorp/memberlist"
)

// maxKeys bounds the keys, because a packet that no key decrypts costs one attempt for
// each.
const maxKeys = 8

// SecretMark returns the value by which nodes find out whether they share a secret; 0 if
// there is none. It is 64 bits of an HMAC-SHA-256 of the cluster's name, keyed by the
// secret. A node that sees it can test guesses of the secret, so it protects 16 random
// bytes or more, and no password. It proves nothing, since anyone can repeat it: the
// links check who may take part.
func SecretMark(secret []byte, clusterName string) uint64 {
	if len(secret) == 0 {
		return 0
	}
	h := hmac.New(sha256.New, secret)
	_, _ = h.Write([]byte("weir gossip secret mark\x00" + clusterName)) // a hash never fails
	return max(1, binary.BigEndian.Uint64(h.Sum(nil)))
}

// checkKeys returns an error if keys are not valid. The error never contains a key.
func checkKeys(keys [][]byte) error {
	var errs []error
	if len(keys) > maxKeys {
		errs = append(errs, fmt.Errorf("gossip: %d keys, and %d are the most: take out those that no node uses any more",
			len(keys), maxKeys))
	}
	for i, k := range keys {
		if memberlist.ValidateKey(k) != nil {
			errs = append(errs, fmt.Errorf("gossip: key %d has %d bytes, and must have 16, 24 or 32", i+1, len(k)))
		}
		if slices.ContainsFunc(keys[:i], func(o []byte) bool { return bytes.Equal(o, k) }) {
			errs = append(errs, fmt.Errorf("gossip: key %d is given twice", i+1))
		}
	}
	return errors.Join(errs...)
}

// SetKeys replaces the keys that encrypt gossip: the first encrypts, all decrypt. To
// change the key of a running cluster, set the old and the new key on every node, then
// the new and the old, then the new key alone. A node that was opened without keys
// cannot get any, and a node with keys cannot lose all.
func (g *Gossip) SetKeys(keys [][]byte) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
	if len(keys) == 0 || g.ring == nil {
		return errors.New("gossip: encryption is turned on and off by a restart, with keys or without")
	}
	return g.ring.set(keys)
}

// keyring has the keys that encrypt gossip. It is safe for concurrent use.
type keyring struct {
	memberlist.Keyring
	changing sync.Mutex // held while keys are set
}

// set makes the key ring hold the given keys, with the first one primary.
//
// The ring gives its slice to readers without a lock, and removes a key by moving those
// behind it. So this function only removes the last key, which moves nothing. A wanted
// key behind an unwanted one is first moved to the front, by making it primary for a
// moment. Every such key has been in the ring before, so other nodes know it.
func (ring *keyring) set(keys [][]byte) error {
	ring.changing.Lock()
	defer ring.changing.Unlock()
	wanted := func(k []byte) bool {
		return slices.ContainsFunc(keys, func(w []byte) bool { return bytes.Equal(w, k) })
	}
	primary := bytes.Clone(keys[0])
	if err := ring.AddKey(primary); err != nil {
		return err
	}
	if err := ring.UseKey(primary); err != nil {
		return err
	}
	for range 2 * maxKeys {
		have := ring.GetKeys()
		if !slices.ContainsFunc(have, func(k []byte) bool { return !wanted(k) }) {
			break
		}
		last := have[len(have)-1]
		var err error
		if wanted(last) {
			err = errors.Join(ring.UseKey(last), ring.UseKey(primary))
		} else {
			err = ring.RemoveKey(last)
		}
		if err != nil {
			return err
		}
	}
	for _, k := range keys[1:] {
		if err := ring.AddKey(bytes.Clone(k)); err != nil {
			return err
		}
	}
	return nil
}
