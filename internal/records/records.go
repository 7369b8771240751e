package records

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
)

const (
	// maxPlain is how much of a write one record carries, if the configuration of TLS has
	// DynamicRecordSizingDisabled.
	maxPlain = 16 << 10
	// maxGathered bounds the records that are sent together, in bytes. It has room for those
	// of 32 KiB, which is what gRPC writes at once.
	maxGathered = 2*maxPlain + 1<<10
)

// Joiner makes connections whose records are joined. They share its buffers, and have one
// only during a write of more than a record. The zero value is ready. It is safe for
// concurrent use and must not be copied.
type Joiner struct {
	buffers sync.Pool // of *[]byte with a capacity of maxGathered
}

// Server returns the server's side of TLS over a connection. It is for [Join], and can be
// used without.
func (j *Joiner) Server(c net.Conn, config *tls.Config) *tls.Conn {
	return tls.Server(&under{Conn: c, of: j}, config)
}

// Join returns a connection that writes through TLS, of [Joiner.Server], whose handshake has
// ended. TLS without joined records is returned as it is.
func Join(over *tls.Conn) net.Conn {
	u, ok := over.NetConn().(*under)
	if !ok || !over.ConnectionState().HandshakeComplete { // its records would be taken for those of a write
		return over
	}
	return &joined{Conn: over, under: u}
}

// joined is a connection above TLS.
type joined struct {
	*tls.Conn
	under *under
	turn  sync.Mutex // held during a write of more than a record
}

func (c *joined) Write(p []byte) (int, error) {
	if len(p) <= maxPlain {
		return c.Conn.Write(p)
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	c.under.begin((len(p) + maxPlain - 1) / maxPlain)
	n, err := c.Conn.Write(p)
	if endErr := c.under.end(); err == nil {
		err = endErr
	}
	if err != nil {
		n = 0 // how much of the records was sent is not known
	}
	return n, err
}

// under is the connection below TLS. The last of the records that belong together sends all
// of them, so TLS gets the error, and its Close ends a Write that waits for the other side.
type under struct {
	net.Conn
	of *Joiner

	mu       sync.Mutex
	expected int     // the records of the present write that are still to come
	gathered *[]byte // those that have come; nil: none
}

// begin announces a write of so many records.
func (u *under) begin(records int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expected = records
}

// end sends the records of a write that ended before its last one.
func (u *under) end() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expected = 0
	return u.send()
}

// Write implements [net.Conn]. TLS calls it with one record at a time. Records that TLS
// sends on its own account may come between; they stay in their order, and then the last
// ones of the write may be sent apart.
func (u *under) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.expected > 0 {
		u.expected--
	}
	if u.gathered == nil && u.expected == 0 {
		return u.Conn.Write(p)
	}
	if u.gathered != nil && len(*u.gathered)+len(p) > maxGathered {
		if err := u.send(); err != nil {
			return 0, err
		}
	}
	if u.gathered == nil {
		u.gathered = u.of.take()
	}
	*u.gathered = append(*u.gathered, p...) // a record is shorter than maxGathered
	if u.expected == 0 {
		if err := u.send(); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// send sends what is gathered. The lock is held.
func (u *under) send() error {
	b := u.gathered
	if b == nil {
		return nil
	}
	u.gathered = nil
	n, err := u.Conn.Write(*b)
	if err == nil && n < len(*b) {
		err = io.ErrShortWrite
	}
	u.of.give(b)
	return err
}

func (j *Joiner) take() *[]byte {
	if b, ok := j.buffers.Get().(*[]byte); ok {
		return b
	}
	return new(make([]byte, 0, maxGathered))
}

func (j *Joiner) give(b *[]byte) {
	*b = (*b)[:0]
	j.buffers.Put(b)
}
