package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/hashicorp/memberlist"

	"github.com/weirlimit/weir/internal/peer"
)

// about is what a node tells about itself in its metadata.
type about struct {
	peer.Member // the metadata lacks Name and GossipAddr, which memberlist carries
	// cluster, ring and secret (its mark) must be the same for all members.
	cluster string
	ring    uint64
	secret  uint64
	// started is when this run began, by the node's clock, in Unix milliseconds. It
	// decides which of two runs of one name is the later one, and nothing else.
	started uint64
}

// Metadata is a mark and fields: each has a tag, a length and that many bytes. Unknown
// tags are skipped, and a missing field is zero, so fields can be added. A tag is never
// reused.
const metaMark = "weir1"

// fields returns the texts and numbers of the metadata. The tag of each is its index and 1.
func (a *about) fields() []any {
	return []any{&a.cluster, &a.ring, &a.Instance, &a.started, &a.State, &a.PeerAddr, &a.GRPCAddr, &a.HTTPAddr,
		&a.RulesHash, &a.Wire, &a.Version, &a.secret, &a.AdminAddr, &a.ZoneData}
}

var errMeta = errors.New("it is not the metadata of a Weir node")

// encode returns the metadata. The error is [ErrMeta].
func (a *about) encode() ([]byte, error) {
	b := []byte(metaMark)
	for i, field := range a.fields() {
		text, number := "", uint64(0)
		switch of := field.(type) {
		case *string:
			text = *of
		case *uint64:
			number = *of
		case *uint16:
			number = uint64(*of)
		case *peer.Instance:
			number = uint64(*of)
		case *peer.State:
			number = uint64(*of)
		}
		if number != 0 {
			text = string(binary.AppendUvarint(nil, number))
		}
		if text != "" {
			b = binary.AppendUvarint(append(b, byte(i+1)), uint64(len(text)))
			b = append(b, text...)
		}
	}
	if len(b) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("%w: %d bytes for the cluster's name, the addresses %q, %q, %q, %q and the version, and %d "+
			"are the most: shorten them",
			ErrMeta, len(b), a.PeerAddr, a.GRPCAddr, a.HTTPAddr, a.AdminAddr, memberlist.MetaMaxSize)
	}
	return b, nil
}

// decode reads metadata, which may come from any sender.
func decode(b []byte) (about, error) {
	var a about
	if len(b) < len(metaMark) || string(b[:len(metaMark)]) != metaMark {
		return a, errMeta
	}
	b = b[len(metaMark):]
	for fields := a.fields(); len(b) > 0; {
		tag := int(b[0])
		n, used := binary.Uvarint(b[1:])
		if used <= 0 || n > uint64(len(b)-1-used) {
			return a, errMeta
		}
		field := b[1+used : 1+used+int(n)]
		b = b[1+used+int(n):]
		if tag > 0 && tag <= len(fields) && !set(fields[tag-1], field) {
			return a, errMeta
		}
	}
	if a.Instance == 0 || a.State > peer.Leaving {
		return a, errMeta
	}
	return a, nil
}

// set stores one field. It reports false if the field is not valid.
func set(to any, field []byte) bool {
	if text, ok := to.(*string); ok {
		*text = string(field)
		return utf8.Valid(field)
	}
	number, used := binary.Uvarint(field)
	switch to := to.(type) {
	case *uint64:
		*to = number
	case *uint16:
		*to = uint16(min(number, 65535))
	case *peer.Instance:
		*to = peer.Instance(number)
	case *peer.State:
		*to = peer.State(min(number, 255))
	}
	return used == len(field) && used > 0
}
