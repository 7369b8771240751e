//go:build linux

package attack

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/peerlink"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
	"github.com/weirlimit/weir/ring"
)

// forgedFrames connects to the peer ports as a member that nobody knows, and sends what
// would do harm if it were believed: epochs that nobody can exceed, counters outside
// their partition, frames from and to instances that do not exist, and messages that say
// that they have many more items than they carry.
func forgedFrames(ctx context.Context, c *Cluster, t *tally) error {
	var attacking sync.WaitGroup
	for i := range c.Targets {
		target := &c.Targets[i]
		conn, err := grpc.NewClient("passthrough:///"+target.Peer, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		attacking.Go(func() {
			every(ctx, 200*time.Millisecond, func(n int) { t.add(intrude(ctx, conn, c, target, n)) })
		})
	}
	attacking.Wait()
	return nil
}

// instance returns an instance id that nobody has.
func instance() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it does not fail: it ends the program instead
	return binary.LittleEndian.Uint64(b[:]) | 1
}

// intrude opens a link as a member that nobody knows: without a word of whom it means, and
// with the member that it dials.
func intrude(ctx context.Context, conn *grpc.ClientConn, c *Cluster, to *Target, n int) error {
	hello := stranger(c, instance())
	if n%2 == 0 {
		hello.Address = "127.0.0.1:9"
		hello.Expected, hello.ExpectedName, hello.ExpectedAddress = instance(), to.Name, to.Peer
	}
	return link(ctx, conn, hello, n)
}

// stranger is the hello of an instance that nobody knows.
func stranger(c *Cluster, self uint64) *peerv1.Hello {
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // it does not fail: it ends the program instead
	return &peerv1.Hello{Wire: peerlink.Wire, Cluster: c.ClusterName, RingConfig: ring.ConfigHash(), Name: "intruder",
		Instance: self, Nonce: nonce}
}

// link says hello, sends one forged frame and waits for what becomes of it. The error
// says that the node refused the link; there is none if it is still open after a while.
func link(ctx context.Context, conn *grpc.ClientConn, hello *peerv1.Hello, n int) error {
	during, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	s, err := peerv1.NewLinksClient(conn).Connect(during)
	if err != nil {
		return err
	}
	first := &peerv1.Message{Hello: hello}
	if n%4 == 3 { // what is said to have many items, before anything is proven
		first.Frame = &peerv1.Frame{From: hello.GetInstance(), Checks: &peerv1.Checks{Count: 65536},
			Keys: &peerv1.Keys{Count: 65536}, Entries: &peerv1.Entries{Count: 65536}}
	}
	if err := s.Send(first); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if _, err := s.Recv(); err != nil {
		return err
	}
	if err := s.Send(&peerv1.Message{Proof: make([]byte, 32), Frame: forged(hello.GetInstance(), n)}); err != nil &&
		!errors.Is(err, io.EOF) {
		return err
	}
	for {
		if _, err := s.Recv(); err != nil {
			if during.Err() != nil && ctx.Err() == nil {
				return nil // the node has kept the link open
			}
			return err
		}
	}
}

// borrowedNames connects to the peer ports in the name of another member's run, which
// operators and gossip know, with a proof that is none or repeats the node's own.
func borrowedNames(ctx context.Context, c *Cluster, t *tally) error {
	var attacking sync.WaitGroup
	for i := range c.Targets {
		target, lent := &c.Targets[i], &c.Targets[(i+1)%len(c.Targets)]
		conn, err := grpc.NewClient("passthrough:///"+target.Peer, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		attacking.Go(func() {
			every(ctx, time.Second, func(n int) {
				runs, err := instances(ctx, target)
				if err == nil && (runs[target.Name] == 0 || runs[lent.Name] == 0) {
					err = fmt.Errorf("%s lists no instance of %s or %s: %w", target.Name, target.Name, lent.Name,
						context.DeadlineExceeded)
				}
				if err == nil {
					hello := stranger(c, runs[lent.Name])
					hello.Name, hello.Address = lent.Name, lent.Peer
					hello.Expected, hello.ExpectedName, hello.ExpectedAddress = runs[target.Name], target.Name, target.Peer
					err = link(ctx, conn, hello, n)
				}
				t.add(err)
			})
		})
	}
	attacking.Wait()
	return nil
}

// instances returns the instances of the members, by name, as a node's operators see them.
func instances(ctx context.Context, at *Target) (map[string]uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at.Admin+"/v1/members", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // it tells nothing of the links
	}
	defer func() { _ = resp.Body.Close() }()
	var list struct {
		Members []struct{ Name, Instance string }
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&list); err != nil {
		return nil, fmt.Errorf("%w: %w", context.DeadlineExceeded, err) // likewise
	}
	runs := make(map[string]uint64)
	for _, m := range list.Members {
		if runs[m.Name], err = strconv.ParseUint(m.Instance, 16, 64); err != nil {
			return nil, err
		}
	}
	return runs, nil
}

// refusedHandshakes has the peer ports refuse 30 connections a second each, from several
// addresses and for several reasons, with a new name each time, so that what is logged of
// them would fill a disk.
func refusedHandshakes(ctx context.Context, c *Cluster, t *tally) error {
	var attacking sync.WaitGroup
	for i := range c.Targets {
		target := &c.Targets[i]
		for w := range 6 {
			from := sources()[w]
			attacking.Go(func() {
				every(ctx, 200*time.Millisecond, func(n int) {
					if (n+w)%2 == 0 {
						t.add(chat(ctx, from, target.Peer, fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: %d\r\n\r\n", n, n)))
						return
					}
					conn, err := grpc.NewClient("passthrough:///"+target.Peer,
						grpc.WithTransportCredentials(insecure.NewCredentials()),
						grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
							return connect(ctx, from, address)
						}))
					if err != nil {
						t.add(err)
						return
					}
					defer func() { _ = conn.Close() }()
					hello := stranger(c, instance())
					hello.Name = fmt.Sprintf("%d-%d-%s", w, n, strings.Repeat("long", 60))
					switch n % 4 {
					case 0:
						hello.Cluster = fmt.Sprintf("cluster-%d", n)
					case 1:
						hello.RingConfig = uint64(n)
					}
					t.add(link(ctx, conn, hello, 0))
				})
			})
		}
	}
	attacking.Wait()
	return nil
}

// chat sends a text and reads the answer. The error says that there is one, which is a
// refusal, or why there is none.
func chat(ctx context.Context, from, address, text string) error {
	conn, err := connect(ctx, from, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(answerWithin)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	answer, err := io.ReadAll(io.LimitReader(conn, 4<<10))
	return errors.Join(fmt.Errorf("the answer is %q", answer), err)
}

// forged is a frame that lies.
func forged(self uint64, n int) *peerv1.Frame {
	f := &peerv1.Frame{From: self, To: 0, Number: 1}
	switch n % 3 {
	case 0: // an owner whose epoch nobody can exceed, of every partition
		a := new(peerv1.Announces)
		for p := range uint32(2042) {
			a.Partitions = append(a.Partitions, p)
			a.EpochCounters = append(a.EpochCounters, math.MaxUint64)
			a.EpochInstances = append(a.EpochInstances, self)
			a.Heirs = append(a.Heirs, self)
		}
		a.Count = uint32(len(a.Partitions))
		f.Announces = a
	case 1: // a snapshot with a counter at the very end of the key space
		f.Limits = []*peerv1.Limit{{Name: "hour", Limit: 5, WindowUs: int64(time.Hour / time.Microsecond),
			Weight: proto.Int32(1000)}}
		f.Batches = &peerv1.Batches{Count: 1, Partitions: []uint32{0}, Kinds: []byte{1},
			EpochCounters:  []uint64{math.MaxUint64 - 1},
			EpochInstances: []uint64{self}, Seqs: []uint64{1}, Flags: []byte{3}, Appointments: []uint32{1}, Keys: []uint32{1}}
		f.Entries = &peerv1.Entries{Count: 1, His: []uint64{math.MaxUint64}, Los: []uint64{0}, Limits: []uint32{0},
			Flags: []byte{1}, As: []uint32{5}}
	default: // claims above all counters, from and to instances that do not exist
		f.From, f.To, f.Relayed, f.Via = instance(), instance(), true, self
		claims := new(peerv1.Claims)
		for p := range uint32(2042) {
			claims.Partitions = append(claims.Partitions, p)
			claims.Counters = append(claims.Counters, math.MaxUint64-2)
		}
		claims.Count = uint32(len(claims.Partitions))
		claims.Kinds = make([]byte, claims.Count)
		f.Claims = claims
	}
	return f
}
