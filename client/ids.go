package client

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/weirlimit/weir/limiter"
)

// ids makes the ids of checks that come without one, so that a check that is retried counts
// once. It is safe for concurrent use.
type ids struct {
	from [4]byte       // random
	next atomic.Uint64 // starts at random
	ttl  time.Duration // how long nodes are to remember them
}

// ownID is an id of a client: text of fixed length, since calls of their own carry text only.
type ownID [16]byte

// start chooses the first id. Those of other clients are others: 96 random bits apart.
func (s *ids) start(timeout time.Duration) {
	var seed [12]byte
	_, _ = rand.Read(seed[:]) // which never fails
	copy(s.from[:], seed[:])
	s.next.Store(binary.LittleEndian.Uint64(seed[4:]))
	s.ttl = 2 * timeout // every retry has ended by then
}

// make returns the next id, and its number.
func (s *ids) make() (number uint64, id ownID) {
	var n [12]byte
	copy(n[:], s.from[:])
	number = s.next.Add(1)
	binary.LittleEndian.PutUint64(n[4:], number)
	base64.RawURLEncoding.Encode(id[:], n[:])
	return number, id
}

// idKind is what the ids of a message have in common.
type idKind struct {
	ttl      time.Duration // how long they are remembered; 0: the rules say it
	optional bool          // as in a request
	hold     time.Duration // for which they reserve; 0: they do not
}

type identified struct {
	own ownID // if the request has none
	ids idKind
	has bool // own is set
}

// identify returns the id of a check: the client's own if the request has none, and none for
// a peek, which charges nothing.
func (c *Client) identify(r *limiter.Request, peek bool) identified {
	if r.ID != "" || peek || c.config.NoIDs {
		return identified{ids: idKind{r.IDTTL, r.IDOptional, r.Hold}}
	}
	_, own := c.ids.make()
	return identified{own: own, ids: idKind{c.ids.ttl, true, 0}, has: true}
}

// appendID appends the id of a check to the columns of ids, which stay empty while no check
// has one.
func (b *batch) appendID(r *limiter.Request, id *identified) {
	m, n := &b.message, len(r.ID)
	if id.has {
		n = len(id.own)
		m.Ids = append(m.Ids, id.own[:]...)
	} else {
		m.Ids = append(m.Ids, r.ID...)
	}
	m.IdLengths = length(m.IdLengths, b.n, n)
}
