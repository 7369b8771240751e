package gossip

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/peer"
)

// Without a gossip key anyone can say anything about members. No link confirms it, so it
// has no effect. Who said it is told all the same. Links may be slower than gossip, and
// members repeat what they hear, so a claim is judged some seconds later, and its sender
// may be a member that repeats it.

const (
	// judgeAfter is how long links have to confirm what gossip says. It is more than a node
	// takes to be linked to all members.
	judgeAfter = 10 * time.Second
	// maxClaims bounds the claims of each kind that wait to be judged; further ones are not
	// told.
	maxClaims = 64
	// maxSources bounds the claims whose senders are known, and maxKey the bytes of each: a name,
	// an address and a word. A longer claim is of no member that could be one.
	maxSources, maxKey = 1024, maxName + 64
	// keepSource is how long a sender counts as the first.
	keepSource = time.Minute
	// maxSenders is the most senders of which one may have said something.
	maxSenders = 3
)

// claim is something that gossip says about a member, and no link yet.
type claim struct {
	known peer.Known // what must be so for the claim to be true
	from  string     // its sender
	text  string
	at    time.Time
}

// claims are what gossip says and links have not confirmed yet, in the order in which it came. It is safe for
// concurrent use.
type claims struct {
	g *Gossip

	mu      sync.Mutex
	waiting []claim
}

// add adds a claim, unless it waits already or there is no room. Members that are invented
// take no room from departures, which are those of members that links know.
func (c *claims) add(one claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	alike := 0
	for i := range c.waiting {
		if c.waiting[i].known.Equal(one.known) {
			return
		}
		if c.waiting[i].known.Gone == one.known.Gone {
			alike++
		}
	}
	if alike < maxClaims {
		c.waiting = append(c.waiting, one)
	}
}

// due removes the claims that are to be judged, and returns them.
func (c *claims) due(now time.Time) []claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.waiting) && now.Sub(c.waiting[n].at) >= judgeAfter {
		n++
	}
	out := slices.Clone(c.waiting[:n])
	c.waiting = slices.Delete(c.waiting, 0, n)
	return out
}

// noted reports whether claims are noted: if strangers can make them, and links can refute
// them.
func (c *claims) noted() bool {
	return c.g.ring == nil && c.g.cfg.Vouched != nil && c.g.cfg.Refused != nil
}

// doubt notes what gossip says of a member and no link confirms. A departure is noted only
// if links say that the member is there, since gossip remembers departures for longer than
// links do.
func (c *claims) doubt(r *gone, now time.Time) {
	if !c.noted() || r.Name == c.g.cfg.Name || c.g.cfg.vouched(r) {
		return
	}
	key, text := aliveClaim(r.Name, r.GossipAddr), fmt.Sprintf("the member %q at %s, instance %s: no link to it",
		clip(r.Name), r.GossipAddr, r.Instance)
	if r.fate != dead {
		if !c.g.cfg.vouched(&gone{about: r.about}) {
			return
		}
		key, text = goneClaim(r.Name), fmt.Sprintf("the departure of the member %q, instance %s: no link says so",
			clip(r.Name), r.Instance)
	}
	from := c.g.guard.whence(key, r.GossipAddr)
	c.add(claim{known: r.known(), from: from, text: "gossip alone told of " + text, at: now})
}

// doubtDeparture is doubt of what memberlist has heard: that a member has left.
func (c *claims) doubtDeparture(n *memberlist.Node) {
	if a, err := aboutNode(n); err == nil {
		c.doubt(&gone{about: a, fate: left}, time.Now())
	}
}

// judge tells of the claims that links have not confirmed in time.
func (c *claims) judge(now time.Time) {
	due, of := c.due(now), c.g
	for _, c := range due {
		if !of.cfg.Vouched(c.known) && (c.known.Gone ||
			!of.cfg.Vouched(peer.Known{Name: c.known.Name, Instance: c.known.Instance, Gone: true})) {
			of.log.reportRefused(fmt.Sprint("claim ", c.known.Gone, hostOf(c.from)), c.from, c.text)
		}
	}
}

// aliveClaim and goneClaim name claims, to remember who sent them.
func aliveClaim(name, addr string) string { return "alive " + addr + " " + name }
func goneClaim(name string) string        { return "gone " + name }

// sources remembers who was the first in a minute to make a claim in a packet: others repeat
// it. It is safe for concurrent use.
type sources struct {
	mu    sync.Mutex
	first map[string]source // by claim
}

type source struct {
	from string
	at   time.Time
}

// keep remembers a sender. At the bound all are forgotten.
func (s *sources) keep(claim, from string, now time.Time) {
	if len(claim) > maxKey {
		return // a packet has room for much
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil || len(s.first) >= maxSources {
		s.first = make(map[string]source)
	}
	if old, ok := s.first[claim]; !ok || now.Sub(old.at) >= keepSource {
		s.first[claim] = source{from, now}
	}
}

func (s *sources) of(claim string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first[claim].from
}

// whence returns the sender of a claim: that of a packet or, if it came in none, those of
// the streams that are open, as it came by one of them; otherwise the given address.
func (g *guard) whence(claim, otherwise string) string {
	if from := g.sources.of(claim); from != "" {
		return from
	}
	g.mu.Lock()
	var open []string
	for _, streams := range g.from {
		for s := range streams {
			open = append(open, s.RemoteAddr().String())
		}
	}
	open = slices.AppendSeq(open, maps.Keys(g.dialled))
	g.mu.Unlock()
	slices.Sort(open)
	return cmp.Or(strings.Join(open[:min(len(open), maxSenders)], " or "), otherwise)
}

// note remembers who sent the claims of a packet that is sound.
func (g *guard) note(b []byte, from string, now time.Time) {
	defer g.panicked.catch()
	eachMessage(b, func(m []byte) {
		switch m[0] {
		case msgAlive:
			var name, host string
			var port uint64
			eachField(m[1:], func(field string, value []byte) {
				switch field {
				case "Node":
					name = textOf(value)
				case "Addr":
					host = net.IP(textOf(value)).String()
				case "Port":
					port, _ = unsigned(value)
				}
			})
			g.sources.keep(aliveClaim(name, net.JoinHostPort(host, strconv.FormatUint(port, 10))), from, now)
		case msgDead: // of itself: it leaves
			var name, by string
			eachField(m[1:], func(field string, value []byte) {
				switch field {
				case "Node":
					name = textOf(value)
				case "From":
					by = textOf(value)
				}
			})
			if name == by {
				g.sources.keep(goneClaim(name), from, now)
			}
		case msgUser:
			list, _ := decodeGone(m[1:], now) // an error is logged by who processes the message
			for i := range list {
				key := goneClaim(list[i].Name)
				if list[i].fate == dead {
					key = aliveClaim(list[i].Name, list[i].GossipAddr)
				}
				g.sources.keep(key, from, now)
			}
		}
	})
}

// eachMessage calls f with each message of a packet that is sound.
func eachMessage(b []byte, f func([]byte)) {
	if len(b) >= 5 && b[0] == msgCRC {
		b = b[5:]
	}
	if len(b) < 2 || b[0] != msgCompound {
		f(b)
		return
	}
	count := int(b[1])
	sizes, b := b[2:2+2*count], b[2+2*count:]
	for ; len(sizes) > 0; sizes = sizes[2:] {
		n := binary.BigEndian.Uint16(sizes)
		f(b[:n])
		b = b[n:]
	}
}

// eachField calls f with each field of an object that is sound.
func eachField(b []byte, f func(name string, value []byte)) {
	kind, size, values := shape(b)
	if kind != kindObject {
		return
	}
	b = b[size:]
	for range values / 2 {
		value, ok := skip(b, maxDepth)
		if !ok {
			return
		}
		rest, ok := skip(value, maxDepth)
		if !ok {
			return
		}
		f(textOf(b[:len(b)-len(value)]), value[:len(value)-len(rest)])
		b = rest
	}
}

// textOf returns the text in a value, "" if it is none.
func textOf(b []byte) string {
	kind, size, _ := shape(b)
	if kind != kindText || size > uint64(len(b)) {
		return ""
	}
	switch c := b[0]; {
	case c <= 0xbf:
		return string(b[1:size])
	case c == 0xc4 || c == 0xd9:
		return string(b[2:size])
	case c == 0xc5 || c == 0xda:
		return string(b[3:size])
	default:
		return string(b[5:size])
	}
}
