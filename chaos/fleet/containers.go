//go:build linux

package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/weirlimit/weir/chaos/docker"
	"github.com/weirlimit/weir/chaos/netlab"
)

// Containers is the nodes of docker-compose.yaml, and a fourth like them for who
// joins later. Clients ask at ports of loopback.
type Containers struct {
	Engine *docker.Engine
	// Image is what they run, Root the directory of docker-compose.yaml.
	Image, Root string
	// Project is what containers and networks are called by.
	Project string
}

// Lacks implements [Ground].
func (g Containers) Lacks(n Need) string {
	if n&Redis != 0 {
		return "docker-compose.yaml has two nodes that count in Redis, which make compose-test asks"
	}
	if n&Disks != 0 {
		return "the containers keep their counters in volumes, which make compose-test looks at"
	}
	if n&Shapes != 0 {
		return "between containers the kernel carries the frames, and delays none"
	}
	if n&Cuts == 0 {
		return ""
	}
	if os.Geteuid() != 0 {
		return "to enter the network of a container takes root"
	}
	if _, err := exec.LookPath("iptables-restore"); err != nil {
		return "to cut what containers say to each other takes iptables-restore, of the package iptables"
	}
	return ""
}

// overlay is what a run puts on top of docker-compose.yaml: its rules for each
// node, and the fourth, with a certificate.
func (g Containers) overlay(c *Config) (string, error) {
	var b strings.Builder
	b.WriteString("services:\n")
	for i := range c.Nodes {
		rules, err := filepath.Abs(filepath.Dir(c.rulesFile(i)))
		if err != nil {
			return "", err
		}
		more, data := "", "" // the others have volumes for their counters
		if i >= c.Nodes-c.Spare {
			data = fmt.Sprintf(`, "node-%d-data:/data"`, i+1)
			more = fmt.Sprintf(`, "127.0.0.1:${WEIR_PORT_NODE_%d}:8080"`, i+1)
		}
		fmt.Fprintf(&b, "  node-%d:\n    volumes: [%q, \"node-%d-keys:/keys:ro\"%s]\n", i+1, rules+":/etc/weir:ro", i+1, data)
		fmt.Fprintf(&b, "    ports: [\"127.0.0.1:${WEIR_ADMIN_PORT_NODE_%d}:8082\"%s]\n", i+1, more)
		if flags := c.more(i); len(flags) > 0 {
			fmt.Fprintf(&b, "    command: [serve, %s]\n", `"`+strings.Join(flags, `", "`)+`"`)
		}
		if i < c.Nodes-c.Spare {
			continue
		}
		name := fmt.Sprintf("node-%d", i+1)
		fmt.Fprintf(&b, "    image: ${WEIR_IMAGE}\n    restart: unless-stopped\n    stop_grace_period: 20s\n    "+
			"environment: "+
			"{GOMEMLIMIT: 690MiB, WEIR_MAX_KEYS: 500000, WEIR_RULES: /etc/weir/rules.yaml, WEIR_SECRET_FILE: /keys/secret, "+
			"WEIR_GOSSIP_KEY_FILE: /keys/gossip.key, WEIR_PEER_CA: /keys/peer-ca.crt, WEIR_PEER_CERT: /keys/%s-peer.crt, "+
			"WEIR_PEER_KEY: /keys/%s-peer.key, WEIR_DATA_DIR: /data, "+
			"WEIR_JOIN: %q, WEIR_GOSSIP_ADDR: %q, WEIR_PEER_ADDR: %q, WEIR_ADMIN_ADDR: %q, WEIR_NAME: %s, WEIR_ADVERTISE: %s}\n",
			name, name, "node-1:7946,node-2:7946,node-3:7946", fmt.Sprintf(":%d", PortGossip), fmt.Sprintf(":%d", PortPeers),
			fmt.Sprintf(":%d", PortAdmin), name, name)
	}
	var names []string
	for i := range c.Nodes {
		names = append(names, fmt.Sprintf("node-%d", i+1))
	}
	fmt.Fprintf(&b, "  keys:\n    command: [keys, /members, --authority, /authority, --apart, --member, %q]\n    "+
		"volumes: [\"node-4-keys:/members/node-4\"]\nvolumes:\n  node-4-keys: {}\n  node-4-data: {}\n",
		strings.Join(names, ","))
	return b.String(), nil
}

func (g Containers) open(ctx context.Context, c *Config) (_ site, err error) {
	if c.Redis {
		return nil, errors.New(g.Lacks(Redis))
	}
	text, err := g.overlay(c)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(c.Dir, "compose.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	s := &containers{config: c, engine: g.Engine, wishes: make(map[[2]int]netlab.Link)}
	s.project = &docker.Project{
		Engine: g.Engine, Dir: g.Root, Name: g.Project, Files: []string{filepath.Join(g.Root, "docker-compose.yaml"), file},
		Env: []string{"WEIR_IMAGE=" + g.Image},
	}
	ports, err := docker.Ports(ctx, 3*c.Nodes)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range c.Nodes {
		names = append(names, fmt.Sprintf("node-%d", i+1))
		p := ports[3*i:]
		s.ports, s.admins = append(s.ports, p[0]), append(s.admins, p[2])
		s.project.Env = append(s.project.Env, fmt.Sprintf("WEIR_PORT_NODE_%d=%s", i+1, p[0]),
			fmt.Sprintf("WEIR_GRPC_PORT_NODE_%d=%s", i+1, p[1]),
			fmt.Sprintf("WEIR_ADMIN_PORT_NODE_%d=%s", i+1, p[2]))
	}
	// Nodes are started one by one, without what compose would start before them.
	// Compose waits for the container of the keys that it knows to have ended, also where
	// it only makes the nodes; another one that run makes would not do.
	if _, err := s.project.Command(ctx, "up", "--no-build", "keys"); err != nil {
		return nil, errors.Join(err, s.close())
	}
	if _, err := s.project.Command(ctx, append([]string{"up", "--no-start", "--no-build"}, names...)...); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// containers is where nodes are containers.
type containers struct {
	config  *Config
	engine  *docker.Engine
	project *docker.Project
	ports   []string // of HTTP
	admins  []string // of administration
	nodes   []*container

	mu     sync.Mutex
	wishes map[[2]int]netlab.Link // what is wrong with the links from one to another
}

func (s *containers) dial(ctx context.Context, network, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, address)
}

// trusted implements [site]. Clients are at ports of loopback.
func (*containers) trusted() *tls.Config { return nil }

func (s *containers) place(ctx context.Context, n *Node) error {
	id, err := s.project.ID(ctx, n.Name)
	if err != nil {
		return err
	}
	b := &container{at: s, index: n.Index, name: n.Name, id: id}
	s.nodes = append(s.nodes, b)
	n.body, n.url, n.admin = b, "http://127.0.0.1:"+s.ports[n.Index], "http://127.0.0.1:"+s.admins[n.Index]
	return nil
}

// keep writes what each container has said so far.
func (s *containers) keep(ctx context.Context) error {
	var err error
	for _, b := range s.nodes {
		out, e := s.engine.Run(ctx, "logs", b.id)
		err = errors.Join(err, e, os.WriteFile(filepath.Join(s.config.Dir, b.name+".log"), []byte(out), 0o600))
	}
	return err
}

// close also says whether the engine had to start a node again by itself.
func (s *containers) close() error {
	ctx := context.Background() // each command has its bound
	var err error
	for _, b := range s.nodes {
		if log, e := b.ended(ctx); e != nil {
			err = errors.Join(err, fmt.Errorf("%s %w; its log ends: %s", b.name, e, log))
		}
	}
	return errors.Join(err, s.project.Down(ctx))
}
