package netlab

import (
	"encoding/binary"
	"slices"
)

const (
	etherHeader = 14
	etherIPv4   = 0x0800
	protoTCP    = 6
	protoUDP    = 17
	largest     = 1514 // bytes of a frame: an MTU of 1500 and its header
)

// flow is what the switch reads of a frame.
type flow struct {
	to       [6]byte
	ports    [2]uint16
	hasPorts bool
}

// parse reads a frame, and reports whether it is one that the switch carries:
// IPv4 to one station. Neighbours are told to the kernel, so there is no ARP.
func parse(frame []byte) (f flow, ok bool) {
	if len(frame) < etherHeader+20 || binary.BigEndian.Uint16(frame[12:]) != etherIPv4 {
		return f, false
	}
	copy(f.to[:], frame)
	ip := frame[etherHeader:]
	header := int(ip[0]&15) * 4
	first := binary.BigEndian.Uint16(ip[6:])&0x1fff == 0 // later fragments have no ports
	if first && (ip[9] == protoTCP || ip[9] == protoUDP) && header >= 20 && len(ip) >= header+4 {
		f.ports = [2]uint16{binary.BigEndian.Uint16(ip[header:]), binary.BigEndian.Uint16(ip[header+2:])}
		f.hasPorts = true
	}
	return f, true
}

func (f *flow) blocked(ports []uint16) bool {
	return f.hasPorts && (slices.Contains(ports, f.ports[0]) || slices.Contains(ports, f.ports[1]))
}
