package gossip

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"time"
)

// Nodes exchange lists of members that are gone: all of them at each exchange of views,
// and one in a message when it leaves or is forgotten. A list is a mark, a count, and
// for each member its fate, for how many seconds it has been gone, and its name, gossip
// address and metadata, each after its length.
const recordMark = "gone1"

var errRecord = errors.New("it is no list of members that are gone")

func encodeGone(list []gone, now time.Time) []byte {
	list = list[:min(len(list), maxGone)]
	b := []byte(recordMark)
	b = binary.AppendUvarint(b, uint64(len(list)))
	for i := range list {
		g := &list[i]
		meta, err := g.encode()
		if err != nil {
			meta = nil // cannot happen, as it was decoded from metadata; a reader would refuse the list
		}
		b = append(b, byte(g.fate))
		b = binary.AppendUvarint(b, uint64(max(0, now.Sub(g.since)/time.Second)))
		for _, field := range []string{g.Name, g.GossipAddr, string(meta)} {
			b = binary.AppendUvarint(b, uint64(len(field)))
			b = append(b, field...)
		}
	}
	return b
}

// decodeGone reads a list, which may come from any sender.
func decodeGone(b []byte, now time.Time) ([]gone, error) {
	if len(b) < len(recordMark) || string(b[:len(recordMark)]) != recordMark {
		return nil, errRecord
	}
	b = b[len(recordMark):]
	number := func() (uint64, bool) {
		n, used := binary.Uvarint(b)
		if used <= 0 {
			return 0, false
		}
		b = b[used:]
		return n, true
	}
	text := func() (string, bool) {
		n, ok := number()
		if !ok || n > uint64(len(b)) {
			return "", false
		}
		s := string(b[:n])
		b = b[n:]
		return s, true
	}
	count, ok := number()
	if !ok || count > maxGone {
		return nil, errRecord
	}
	out := make([]gone, 0, min(count, 64)) // the count is not trusted
	for range count {
		if len(b) == 0 || b[0] > byte(left) {
			return nil, errRecord
		}
		f := fate(b[0])
		b = b[1:]
		seconds, ok1 := number()
		name, ok2 := text()
		addr, ok3 := text()
		meta, ok4 := text()
		if !ok1 || !ok2 || !ok3 || !ok4 || CheckName(name) != nil || !isAddr(addr) {
			return nil, errRecord
		}
		a, err := decode([]byte(meta))
		if err != nil {
			return nil, err
		}
		a.Name, a.GossipAddr = name, addr
		age := time.Duration(min(seconds, math.MaxInt32)) * time.Second
		out = append(out, gone{about: a, fate: f, since: now.Add(-age)})
	}
	if len(b) > 0 {
		return nil, errRecord
	}
	return out, nil
}

// isAddr reports whether addr is an IP address with a port, as memberlist has it.
func isAddr(addr string) bool {
	_, err := netip.ParseAddrPort(addr)
	return err == nil
}
