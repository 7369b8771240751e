//go:build linux

package fleet

import (
	"net"
	"testing"
)

// Two fleets never have a port in common, whether or not their nodes listen.
func TestPortsAreReserved(t *testing.T) {
	dir := t.TempDir()
	taken := make(map[string]bool)
	var blocks []*ports
	for range 3 {
		p, err := takePorts(t.Context(), dir, 18)
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, p)
		for range 18 {
			address, err := p.next()
			if err != nil {
				t.Fatal(err)
			}
			if taken[address] {
				t.Errorf("%s was given twice", address)
			}
			taken[address] = true
		}
	}
	first := blocks[0].free
	if err := blocks[0].release(); err != nil {
		t.Fatal(err)
	}
	again, err := takePorts(t.Context(), dir, 18)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) == 0 || again.free[len(again.free)-1] != first[len(first)-1] {
		t.Errorf("the block that was given back is not taken: %v, want the one of %v", again.free, first)
	}
	for _, p := range append(blocks[1:], again) {
		if err := p.release(); err != nil {
			t.Error(err)
		}
	}
}

// A port on which another program listens, over TCP or UDP, is not given out.
func TestPortsInUseAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	p, err := takePorts(t.Context(), dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	overTCP, _ := p.next()
	overUDP, err := p.next()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.release(); err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", overTCP)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	u, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", overUDP)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = u.Close() }()
	if p, err = takePorts(t.Context(), dir, 2); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.release() }()
	for address, err := p.next(); err == nil; address, err = p.next() {
		if address == overTCP || address == overUDP {
			t.Errorf("%s is in use and was given out", address)
		}
	}
}
