package netlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// mostNodes is bounded by the addresses that are given out.
const mostNodes = 200

// Lab is a namespace for each of some nodes, the switch between them, and a
// namespace of clients with a way to each.
type Lab struct {
	// Switch carries what nodes say to each other; node i is its station i.
	*Switch

	clients *Namespace
	nodes   []*Namespace
}

// Usable returns why no lab can be made on this machine, nil if one can.
func Usable() error {
	if os.Geteuid() != 0 {
		return errors.New("network namespaces take root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return errors.New("there is no ip, of the package iproute2")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return errors.New("the kernel has no /dev/net/tun")
	}
	return nil
}

// New makes a lab for so many nodes. Close ends it; so does the end of the
// process.
func New(ctx context.Context, nodes int, seed uint64) (_ *Lab, err error) {
	if nodes < 1 || nodes > mostNodes {
		return nil, fmt.Errorf("a lab has 1 to %d nodes, not %d", mostNodes, nodes)
	}
	l := &Lab{Switch: NewSwitch(seed)}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.clients, err = newNamespace(ctx); err != nil {
		return nil, err
	}
	for i := range nodes {
		if err := l.addNode(ctx, i, nodes); err != nil {
			return nil, err
		}
	}
	return l, nil
}

func (l *Lab) addNode(ctx context.Context, i, nodes int) error {
	n, err := newNamespace(ctx)
	if err != nil {
		return err
	}
	l.nodes = append(l.nodes, n)
	dev, err := n.tap("peers")
	if err != nil {
		return err
	}
	l.Attach(mac(i), dev)
	setup := []string{
		"link set peers address " + macText(i) + " mtu 1500",
		"link set peers up",
		"addr add " + l.PeerHost(i) + "/24 dev peers",
	}
	for j := range nodes {
		if j != i {
			setup = append(setup, fmt.Sprintf("neigh add %s lladdr %s dev peers nud permanent", l.PeerHost(j), macText(j)))
		}
	}
	setup = append(setup,
		fmt.Sprintf("link add clients type veth peer name node%d netns %s", i, l.clients.path()),
		"link set clients up",
		"addr add "+l.ClientHost(i)+"/30 dev clients")
	for _, line := range setup {
		if err := n.ip(ctx, line); err != nil {
			return err
		}
	}
	for _, line := range []string{
		fmt.Sprintf("addr add 10.78.%d.1/30 dev node%d", i, i),
		fmt.Sprintf("link set node%d up", i),
	} {
		if err := l.clients.ip(ctx, line); err != nil {
			return err
		}
	}
	return nil
}

// PeerHost is the address by which other nodes reach node i.
func (l *Lab) PeerHost(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }

// ClientHost is the address by which clients reach node i.
func (l *Lab) ClientHost(i int) string { return fmt.Sprintf("10.78.%d.2", i) }

// Node is the namespace of node i.
func (l *Lab) Node(i int) *Namespace { return l.nodes[i] }

// Clients is the namespace of clients.
func (l *Lab) Clients() *Namespace { return l.clients }

// Close ends the lab. Processes in it are the caller's to end before.
func (l *Lab) Close() error {
	err := l.Switch.Close()
	for _, n := range l.nodes {
		err = errors.Join(err, n.file.Close())
	}
	l.nodes = nil
	if l.clients != nil {
		err = errors.Join(err, l.clients.file.Close())
		l.clients = nil
	}
	return err
}

func mac(i int) [6]byte { return [6]byte{2, 0, 0, 0, 0, byte(i + 1)} }

func macText(i int) string { return fmt.Sprintf("02:00:00:00:00:%02x", i+1) }
