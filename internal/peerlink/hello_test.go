package peerlink

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/peer"
	peerv1 "github.com/weirlimit/weir/proto/weir/peer/v1"
)

// FuzzHello gives a node any bytes as the first message, before a secret is checked.
// Either the message is refused with a short reason, or it fits; then no proof is valid
// for any other hello.
func FuzzHello(f *testing.F) {
	c := newTestCodec()
	node := func(i peer.Instance) *handshake {
		return &handshake{self: peer.Member{Name: "n", Instance: i, Wire: Wire, PeerAddr: "n:7947"}, cluster: "towns",
			ring: 7, secret: []byte("secret")}
	}
	here, there := node(1), node(2)
	for _, change := range []func(h *peerv1.Hello){
		func(*peerv1.Hello) {},
		func(h *peerv1.Hello) { h.Cluster = strings.Repeat("é\x00", 300) },
		func(h *peerv1.Hello) { h.Wire += 2 },
		func(h *peerv1.Hello) { h.RingConfig++ },
		func(h *peerv1.Hello) { h.Nonce = h.GetNonce()[1:] },
		func(h *peerv1.Hello) { h.Instance = 0 },
		func(h *peerv1.Hello) { h.Instance = 1 },
		func(h *peerv1.Hello) { h.Expected = 3 },
		func(h *peerv1.Hello) { h.Name = strings.Repeat("x", 400) },
		func(h *peerv1.Hello) { h.ExpectedName = strings.Repeat("x", 400) },
		func(h *peerv1.Hello) { h.ExpectedAddress = strings.Repeat("é", 400) },
		func(h *peerv1.Hello) { h.Wire -= 2 },
		func(h *peerv1.Hello) { h.Proof = there.prove(sideDialler, h, here.hello(peer.Member{})) },
	} {
		h := there.hello(here.self)
		h.Nonce = bytes.Repeat([]byte{5}, nonceBytes) // seeds are alike in every run
		change(h)
		f.Add(c.bytes(f, &message{hello: h}))
	}
	f.Add(c.bytes(f, &message{proof: []byte("guess")}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := c.message(b)
		if err != nil {
			return
		}
		defer c.release(m)
		theirs := m.hello
		err = here.judge(theirs)
		if err == nil {
			err = here.judgeDialler(theirs)
		}
		if err != nil {
			if text := status.Convert(err).Message(); len(text) > 4*maxName+512 || !utf8.ValidString(text) {
				t.Errorf("it is refused in %d bytes: %q", len(text), text)
			}
			return
		}
		mine := here.hello(peer.Member{})
		good := there.prove(sideDialler, theirs, mine)
		if err := here.verify(sideDialler, theirs, mine, good); err != nil {
			t.Fatalf("a good proof is refused: %v", err)
		}
		for _, proof := range [][]byte{nil, m.proof, theirs.GetProof()} {
			if here.verify(sideDialler, theirs, mine, proof) == nil {
				t.Errorf("%x, which came without the secret, is taken for a proof", proof)
			}
		}
		for what, change := range map[string]func(h *peerv1.Hello){
			"name":          func(h *peerv1.Hello) { h.Name += "x" },
			"cluster":       func(h *peerv1.Hello) { h.Cluster, h.Name = "", h.GetCluster()+h.GetName() },
			"nonce":         func(h *peerv1.Hello) { h.Nonce[0]++ },
			"wire":          func(h *peerv1.Hello) { h.Wire++ },
			"configuration": func(h *peerv1.Hello) { h.RingConfig++ },
			"instance":      func(h *peerv1.Hello) { h.Instance++ },
			"expectation":   func(h *peerv1.Hello) { h.Expected++ },
			"address":       func(h *peerv1.Hello) { h.Address += "0" },
			"name expected": func(h *peerv1.Hello) { h.ExpectedName += "x" },
			"goal":          func(h *peerv1.Hello) { h.ExpectedAddress += "0" },
		} {
			other := proto.Clone(theirs).(*peerv1.Hello)
			change(other)
			if here.verify(sideDialler, other, mine, good) == nil {
				t.Errorf("the proof is good for a hello with another %s too", what)
			}
		}
	})
}
