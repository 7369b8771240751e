//go:build linux

package attack

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/rules"
)

const crowdedRules = "version: 1\nrules: [{name: crowded, match: {path: \"^/crowded$\"}, key: [user], limits: " +
	"[100/hour]}]\n"

// Attacks stay on this machine.
func TestOnlyLoopbackIsAttacked(t *testing.T) {
	for _, address := range []string{"10.0.0.1:8080", "weir.example:8080", "0.0.0.0:8080", "127.0.0.1"} {
		for i := range 6 {
			target := Target{"a", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"}
			*[]*string{&target.HTTP, &target.GRPC, &target.Gossip, &target.Peer, &target.Admin, &target.Health}[i] = address
			if done, err := Run(t.Context(), &Cluster{Targets: []Target{target}}, nil); err == nil || done != nil {
				t.Errorf("%s was attacked: %v", address, done)
			}
		}
	}
}

// The users that crowd share a partition, and stand at its end.
func TestCrowdedUsers(t *testing.T) {
	if testing.Short() {
		t.Skip("long under the race detector; make wire runs it without, make test-long with it")
	}
	users, err := crowdedUsers(t.Context(), &Cluster{Rules: crowdedRules, ClusterName: "weir"})
	if err != nil || len(users) != crowded {
		t.Fatalf("%d users, %v", len(users), err)
	}
	set, err := rules.Parse("rules.yaml", []byte(crowdedRules), rules.Options{ClusterName: "weir"})
	if err != nil {
		t.Fatal(err)
	}
	var c arith.Charge
	for _, u := range users {
		if _, err := set.Resolve(&limiter.Request{Rule: CrowdedRule, User: u}, &c); err != nil {
			t.Fatal(err)
		}
		if k := c.Key(0); table.PartitionOf(k) != 0 || k.Hash.Hi < 9<<60 {
			t.Errorf("%s: partition %d, hash %x", u, table.PartitionOf(k), k.Hash.Hi)
		}
	}
}

// What is sent is what a node reads as it is meant: else nothing is attacked.
func TestMessages(t *testing.T) {
	var check weirv1.CheckRequest
	if err := proto.Unmarshal(repeated(9, nil, 1000), &check); err != nil || len(check.GetLimits()) != 500 {
		t.Errorf("%d limits, %v", len(check.GetLimits()), err)
	}
	var columns weirv1.CheckColumns
	if err := proto.Unmarshal(repeated(8, nil, 1000), &columns); err != nil || len(columns.GetAttributes()) != 500 {
		t.Errorf("%d attributes, %v", len(columns.GetAttributes()), err)
	}
	if err := proto.Unmarshal(repeated(3, []byte{0}, 64), &columns); err != nil || len(columns.GetPathLengths()) != 21 {
		t.Errorf("%d paths, %v", len(columns.GetPathLengths()), err)
	}
	for n := range 3 {
		if m, err := proto.Marshal(forged(instance(), n)); err != nil || len(m) == 0 {
			t.Errorf("frame %d: %d bytes, %v", n, len(m), err)
		}
	}
	two := compound([][]byte{dead("a", "b", 7), dead("c", "d", 8)})
	if two[1] != 2 || int(binary.BigEndian.Uint16(two[2:])+binary.BigEndian.Uint16(two[4:])) != len(two)-6 {
		t.Errorf("compound: % x", two[:6])
	}
	want := append([]byte{gossipDead, 0x83, 0xab}, "Incarnation\xce\x00\x00\x00\x07\xa4Node\xa1a\xa4From\xa1b"...)
	if got := dead("a", "b", 7); !bytes.Equal(got, want) {
		t.Errorf("dead: %q, want %q", got, want)
	}
}

// The attacker reads whom to attack, ends when its input does, and says what it did.
func TestServe(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out strings.Builder
	nobody := Target{"a", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"}
	c, err := json.Marshal(&Cluster{Targets: []Target{nobody}, Rules: crowdedRules, ClusterName: "weir"})
	if err != nil {
		t.Fatal(err)
	}
	if err := Serve(ctx, bytes.NewReader(append(c, "\n\n\n"...)), &out); err != nil {
		t.Fatal(err)
	}
	read := json.NewDecoder(strings.NewReader(out.String()))
	for n := range 3 { // it was asked twice, and then ended
		var done map[string]Tally
		if err := read.Decode(&done); err != nil || len(done) != len(of(false)) {
			t.Errorf("%d: %v, %v", n, done, err)
		}
	}
	if err := Serve(ctx, strings.NewReader("nothing"), &out); err == nil {
		t.Error("it attacks without having been told whom")
	}
}
