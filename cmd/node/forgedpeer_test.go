//go:build unix

package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/cluster/gossip"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/internal/peerlink"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/ring"
)

// mallory speaks to a peer port, in the name of a member.
const mallory peer.Instance = 0x3a110

// stranger is a stream to a node's peer port, of messages that are bytes.
type stranger struct {
	stream grpc.ClientStream
	codec  *peerlink.Codec
	self   peer.Instance
	to     peer.Instance
	err    error
}

// instanceOf returns the instance of a node's run.
func (s *seat) instanceOf(t *testing.T) peer.Instance {
	t.Helper()
	_, body := get(t, http.DefaultClient, "http://"+s.admin+"/v1/members")
	var list struct {
		Members []struct{ Name, Instance string }
	}
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Members {
		if n, err := strconv.ParseUint(m.Instance, 16, 64); m.Name == s.name && err == nil {
			return peer.Instance(n)
		}
	}
	t.Fatalf("%s is no member of its own cluster: %s", s.name, body)
	return 0
}

// befriend opens a stream to a node's peer port as the member "mallory", as far as the
// node lets it: the error is the node's.
func befriend(t *testing.T, s *seat, to peer.Instance) (*stranger, error) {
	t.Helper()
	conn, err := grpc.NewClient(s.peers, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	x := &stranger{codec: peerlink.NewCodec(), self: mallory, to: to}
	x.stream, err = conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		peerv1.Links_Connect_FullMethodName, grpc.ForceCodecV2(raw{}))
	if err != nil {
		t.Fatal(err)
	}
	hello, err := proto.Marshal(&peerv1.Message{Hello: &peerv1.Hello{
		Wire: peerlink.Wire, Cluster: "weir", RingConfig: ring.ConfigHash(), Name: "mallory", Instance: uint64(mallory),
		Nonce:   make([]byte, 16),
		Address: "127.0.0.1:9", Expected: uint64(to), ExpectedName: s.name, ExpectedAddress: s.peers,
	}})
	if err != nil {
		t.Fatal(err)
	}
	var answer []byte
	if err := x.stream.SendMsg(hello); err != nil {
		return nil, x.stream.RecvMsg(&answer)
	}
	if err := x.stream.RecvMsg(&answer); err != nil {
		return nil, err
	}
	// There is no secret, so there is no proof.
	if err := x.stream.SendMsg([]byte{}); err != nil {
		return nil, x.stream.RecvMsg(&answer)
	}
	return x, nil
}

// drain reads what the node sends until it ends the stream.
func (x *stranger) drain() error {
	for {
		var b []byte
		if err := x.stream.RecvMsg(&b); err != nil {
			return err
		}
	}
}

// say sends a frame.
func (x *stranger) say(f *peer.Frame) {
	if x.err != nil {
		return
	}
	if f.Relayed {
		f.Via = x.self
	} else {
		f.From = x.self
	}
	if f.To == 0 {
		f.To = x.to
	}
	b, err := x.codec.Append(nil, f)
	if err == nil {
		err = x.stream.SendMsg(b)
	}
	x.err = err
}

// lie sends every impossible message once.
func (x *stranger) lie(round int, victims []peer.Instance) {
	high := peer.Epoch{Counter: math.MaxUint64, Instance: x.self}
	lim := []peer.Limit{{Name: "day", Algorithm: 1, Limit: 100, Window: 86_400_000_000}}
	for from := range 8 {
		f := &peer.Frame{Limits: lim}
		for p := uint16(from); p < 2042; p += 8 {
			f.Announces = append(f.Announces, peer.Announce{Partition: p, Epoch: high, Heir: x.self})
			f.Claims = append(f.Claims, peer.Claim{Partition: p, Kind: peer.LastResort, Counter: math.MaxUint64, For: x.self})
			f.Answers = append(f.Answers, peer.Answer{Partition: p, Owner: high, Top: math.MaxUint64, Grant: math.MaxUint64,
				Role: peer.Owned, Epoch: high, Seq: math.MaxUint64})
			f.Revokes = append(f.Revokes, peer.Revoke{Partition: p, Epoch: high, Appointment: math.MaxUint32, Drop: true})
			f.Acks = append(f.Acks, peer.Ack{Partition: p, Status: peer.Fenced, Owner: high, Top: math.MaxUint64,
				Seq: math.MaxUint64})
			f.Batches = append(f.Batches, peer.Batch{Partition: p, Kind: peer.Push,
				Epoch: peer.Epoch{Counter: 1, Instance: x.self}, First: true, Last: true, Keys: 1})
			f.Entries = append(f.Entries, peer.Entry{Hi: math.MaxUint64, Lo: math.MaxUint64, First: true, Time: math.MaxInt64,
				Until: math.MaxInt64, A: math.MaxUint32})
		}
		x.say(f)
	}
	rule := []peer.Rule{{ID: uint64(round), Name: "keys"}}
	for i := range 300 {
		invented := peer.Instance(1<<40 + 300*round + i)
		f := &peer.Frame{From: invented, Relayed: true, Rules: rule, Keys: make([]peer.Key, 2),
			Checks:  []peer.Check{{ID: uint64(i), Keys: 1, Wait: math.MaxUint32, Prepare: true, Settles: true}},
			Refunds: []peer.Refund{{ID: uint64(i), Keys: 1, Kind: peer.ResetKeys}}}
		for j := range f.Keys {
			f.Keys[j] = peer.Key{Hi: uint64(i)<<32 + uint64(j), Lo: uint64(round), Cost: math.MaxUint32}
		}
		x.say(f)
		x.say(&peer.Frame{To: invented, Checks: f.Checks, Keys: f.Keys[:1], Rules: rule})
		x.say(&peer.Frame{From: victims[i%len(victims)], Relayed: true,
			Replies: []peer.Reply{{ID: 1<<32 | uint64(i), Status: peer.Forbidden}}})
	}
}

// decidesRightly verifies that each key of a group is admitted up to its limit, and by
// its owner.
func decidesRightly(t *testing.T, all []*seat, group string) {
	t.Helper()
	var c counts
	c.times(t, clusterLimit+3, newAsker(t, all), group)
	if wrong := c.besides(clusterLimit, clusterLimit); len(wrong) > 0 || c.policy > 0 {
		t.Errorf("%s: %d answers of policies, and %v", group, c.policy, wrong[:min(len(wrong), 5)])
	}
}

// link makes nodes accept mallory as a member by gossip, which they do if there is no
// key, and returns a stream to each. If there is a secret, she sends the mark of it
// that she has overheard.
func link(t *testing.T, all []*seat, victims []peer.Instance, mark uint64) (out []*stranger) {
	t.Helper()
	meta := metadata(uint64(mallory), uint64(time.Now().UnixMilli()), 1)
	if mark != 0 {
		value := binary.AppendUvarint(nil, mark)
		meta = append(append(meta, 12, byte(len(value))), value...)
	}
	alive := forgedAlive("mallory", 1, "127.0.0.1:9", meta)
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for i, s := range all {
		udp, err := new(net.Dialer).DialContext(ctx, "udp", s.gossip)
		if err != nil {
			t.Fatal(err)
		}
		defer udp.Close()
		for {
			if _, err := udp.Write(alive); err != nil {
				t.Fatal(err)
			}
			x, err := befriend(t, s, victims[i])
			if err == nil {
				out = append(out, x)
				break
			}
			if code := status.Code(err); code != codes.PermissionDenied && code != codes.Aborted || ctx.Err() != nil {
				t.Fatalf("%s refuses a member that gossip tells of: %v", s.name, err)
			}
			pause(ctx, 20*time.Millisecond) // gossip is on its way
		}
	}
	return out
}

// An attacker known from gossip connects to the peer ports of three nodes without a
// secret, and sends impossible data: epochs and keys without a successor, thousands of
// invented members, resets. The nodes continue to decide as before, in bounded memory,
// and keep none of it.
func TestForgedPeer(t *testing.T) {
	all := seats(t, "--deadline", "3s", "--audit", "stderr")
	var victims []peer.Instance
	var rss []int
	for _, s := range all {
		victims, rss = append(victims, s.instanceOf(t)), append(rss, s.rss(t))
	}
	strangers := link(t, all, victims, 0)
	ended := make(chan error, len(strangers))
	for _, x := range strangers {
		go func() { ended <- x.drain() }()
	}
	half := counts{}
	half.times(t, clusterLimit/2, newAsker(t, all), "half")
	for round := range 10 {
		for _, x := range strangers {
			x.lie(round, victims)
		}
		half.times(t, 1, newAsker(t, all), "half")
	}
	for i, x := range strangers {
		if x.err != nil {
			t.Fatalf("%s does not listen to the end, so that nothing was shown: %v", all[i].name, x.err)
		}
	}
	if wrong := half.besides(clusterLimit/2+10, clusterLimit/2+10); len(wrong) > 0 || half.policy > 0 {
		t.Errorf("meanwhile: %d answers of policies, and %v", half.policy, wrong[:min(len(wrong), 5)])
	}
	for i, s := range all { // the epochs, among others, have lines of the audit
		within(t, s, `and this part of its frames was ignored: an announcement, `, 1)
		within(t, s, `and this part of its frames was ignored: a claim, `, 1)
		if now := s.rss(t); now > rss[i]+128<<20 {
			t.Errorf("%s has %d MB of memory, after %d", s.name, now>>20, rss[i]>>20)
		}
	}
	// Its resets were refused, or were of keys without counters: all counts remain.
	decidesRightly(t, all, "after")
	for _, x := range strangers {
		_ = x.stream.CloseSend()
	}
	for range strangers {
		<-ended
	}
	for _, s := range all {
		s.nothingLeft(t)
	}
}

// nothingLeft waits until nothing waits at a node for anybody.
func (s *seat) nothingLeft(t *testing.T) {
	t.Helper()
	wait, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	for {
		_, body := get(t, http.DefaultClient, "http://"+s.admin+"/metrics")
		var busy []string
		for _, name := range []string{"weir_replies_withheld", "weir_checks_parked", "weir_operations_waiting",
			"weir_frames_queued", "weir_partitions_unsettled"} {
			_, value, ok := strings.Cut(body, "\n"+name+" ")
			if value, _, _ = strings.Cut(value, "\n"); !ok || value != "0" {
				busy = append(busy, name+" "+value)
			}
		}
		if len(busy) == 0 {
			return
		}
		if pause(wait, 20*time.Millisecond); wait.Err() != nil {
			t.Fatalf("%s is left with %v", s.name, busy)
		}
	}
}

// With a secret, no peer without it is accepted, whatever gossip contains.
func TestForgedPeerWithoutTheSecret(t *testing.T) {
	const words = "the secret of all members"
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(words), 0o600); err != nil {
		t.Fatal(err)
	}
	all := places(t, 3, clusterRules, "--deadline", "3s", "--secret-file", secret)
	audit := func(s *seat) string { return filepath.Join(filepath.Dir(secret), s.name) }
	for _, s := range all {
		s.args = append(s.args, "--audit", audit(s))
		s.start(t)
	}
	settle(t, all)
	var victims []peer.Instance
	for _, s := range all {
		victims = append(victims, s.instanceOf(t))
	}
	strangers := link(t, all, victims, gossip.SecretMark([]byte(words), "weir"))
	for i, x := range strangers {
		x.lie(0, victims)
		if err := x.drain(); status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), "has no secret, and this one has") {
			t.Errorf("%s is spoken to by somebody without the secret: %v", all[i].name, err)
		}
	}
	decidesRightly(t, all, "after")
	for _, s := range all {
		s.nothingLeft(t)
		s.signal(os.Interrupt)
		s.end(0) // the audit is written then
		lines, err := os.ReadFile(audit(s))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(lines), `"action":"connect","outcome":"refused"`) ||
			!strings.Contains(string(lines), "has no secret, and this one has") {
			t.Errorf("the audit of %s does not have the stranger: %s", s.name, lines)
		}
	}
}

// A member that does not allow resets takes none by way of one that does.
func TestResetsAreTheOwnersToAllow(t *testing.T) {
	all := places(t, 2, clusterRules, "--deadline", "3s")
	all[0].args = append(all[0].args, "--allow-reset")
	for _, s := range all {
		s.start(t)
	}
	settle(t, all)
	a := newAsker(t, all)
	done, refused := 0, 0
	for i := range 60 {
		user := fmt.Sprint("reset", i)
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		d, err := a.nodes[0].Check(ctx, &weirv1.CheckRequest{Path: "/k", User: user})
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.nodes[0].Reset(ctx, &weirv1.ResetRequest{Path: "/k", User: user})
		cancel()
		switch mine := d.GetLimits()[0].GetOwner() == all[0].name; {
		case mine && err == nil:
			done++
		case !mine && status.Code(err) == codes.PermissionDenied && strings.Contains(err.Error(), "--allow-reset"):
			refused++
		default:
			t.Errorf("%s, which %s owns: %v", user, d.GetLimits()[0].GetOwner(), err)
		}
	}
	if done == 0 || refused == 0 {
		t.Errorf("%d resets were made and %d refused, want some of each", done, refused)
	}
}
