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

const (
	tagCluster = iota + 1
	tagRing
	tagInstance
	tagStarted
	tagState
	tagPeerAddr
	tagGRPCAddr
	tagHTTPAddr
	tagRules
	tagWire
	tagVersion
	tagSecret
	tagAdminAddr
	tagZoneData
)

var errMeta = errors.New("it is not the metadata of a Weir node")

// encode returns the metadata. The error is [ErrMeta].
func (a *about) encode() ([]byte, error) {
	b := []byte(metaMark)
	text := func(tag byte, s string) {
		if s != "" {
			b = append(b, tag)
			b = binary.AppendUvarint(b, uint64(len(s)))
			b = append(b, s...)
		}
	}
	number := func(tag byte, n uint64) {
		if n != 0 {
			text(tag, string(binary.AppendUvarint(nil, n)))
		}
	}
	text(tagCluster, a.cluster)
	number(tagRing, a.ring)
	number(tagInstance, uint64(a.Instance))
	number(tagStarted, a.started)
	number(tagState, uint64(a.State))
	text(tagPeerAddr, a.PeerAddr)
	text(tagGRPCAddr, a.GRPCAddr)
	text(tagHTTPAddr, a.HTTPAddr)
	number(tagRules, a.RulesHash)
	number(tagWire, uint64(a.Wire))
	text(tagVersion, a.Version)
	number(tagSecret, a.secret)
	text(tagAdminAddr, a.AdminAddr)
	text(tagZoneData, a.ZoneData)
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
	for len(b) > 0 {
		tag := b[0]
		n, used := binary.Uvarint(b[1:])
		if used <= 0 || n > uint64(len(b)-1-used) {
			return a, errMeta
		}
		field := b[1+used : 1+used+int(n)]
		b = b[1+used+int(n):]
		if !a.set(tag, field) {
			return a, errMeta
		}
	}
	if a.Instance == 0 || a.State > peer.Leaving {
		return a, errMeta
	}
	return a, nil
}

// set stores one field. It reports false if the field is not valid.
func (a *about) set(tag byte, field []byte) bool {
	number, used := binary.Uvarint(field)
	whole := used == len(field) && used > 0
	text := string(field)
	switch tag {
	case tagRing, tagInstance, tagStarted, tagState, tagRules, tagWire, tagSecret:
		if !whole {
			return false
		}
	case tagCluster, tagPeerAddr, tagGRPCAddr, tagHTTPAddr, tagVersion, tagAdminAddr, tagZoneData:
		if !utf8.ValidString(text) {
			return false
		}
	}
	switch tag {
	case tagCluster:
		a.cluster = text
	case tagRing:
		a.ring = number
	case tagInstance:
		a.Instance = peer.Instance(number)
	case tagStarted:
		a.started = number
	case tagState:
		a.State = peer.State(min(number, 255))
	case tagPeerAddr:
		a.PeerAddr = text
	case tagGRPCAddr:
		a.GRPCAddr = text
	case tagHTTPAddr:
		a.HTTPAddr = text
	case tagAdminAddr:
		a.AdminAddr = text
	case tagRules:
		a.RulesHash = number
	case tagWire:
		a.Wire = uint16(min(number, 65535))
	case tagVersion:
		a.Version = text
	case tagZoneData:
		a.ZoneData = text
	case tagSecret:
		a.secret = number
	}
	return true
}
