//go:build linux

package fleet

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/weirlimit/weir/chaos/netlab"
)

// What the kernel of node-2 is told, of what is cut and blocked on the way to it.
func TestTableOfWhatIsDropped(t *testing.T) {
	s := &containers{wishes: map[[2]int]netlab.Link{
		{0, 1}: {Cut: true},
		{1, 0}: {Cut: true}, // what node-1 does not hear is node-1's table
		{2, 1}: {Blocked: []uint16{PortGossip}},
		{3, 1}: {Cut: true}, // it never ran, so it has no address
	}}
	for _, host := range []string{"10.1.0.2", "10.1.0.3", "10.1.0.4", ""} {
		s.nodes = append(s.nodes, &container{at: s, index: len(s.nodes), host: host})
	}
	want := `*filter
:INPUT ACCEPT [0:0]
-A INPUT -s 10.1.0.2 -j DROP
-A INPUT -s 10.1.0.4 -p tcp --dport 7946 -j DROP
-A INPUT -s 10.1.0.4 -p tcp --sport 7946 -j DROP
-A INPUT -s 10.1.0.4 -p udp --dport 7946 -j DROP
-A INPUT -s 10.1.0.4 -p udp --sport 7946 -j DROP
COMMIT
`
	if got := s.table(1); got != want {
		t.Errorf("node-2 is told\n%swant\n%s", got, want)
	}
	s.nodes[0].host = "10.1.0.9" // it was started again
	if got := s.table(1); !strings.Contains(got, "-s 10.1.0.9 -j DROP") || strings.Contains(got, "10.1.0.2 ") {
		t.Errorf("node-1 has another address, and node-2 is told\n%s", got)
	}
}

// Links that the kernel cannot make are an error, and not whole.
func TestLinksThatContainersHaveNot(t *testing.T) {
	s := &containers{wishes: map[[2]int]netlab.Link{}}
	s.nodes = []*container{{at: s}, {at: s, index: 1}}
	if err := s.set(t.Context(), 0, 1, netlab.Link{Cut: true, Delay: time.Millisecond}); err == nil {
		t.Error("a link with a delay is taken for one that is cut")
	}
	if err := s.set(t.Context(), 0, 1, netlab.Link{Cut: true}); err != nil { // neither runs: nobody is told
		t.Error(err)
	}
}

// The node that joins is as those of docker-compose.yaml are, but for its name and
// its ports, and all of them have the rules of the run.
func TestOverlay(t *testing.T) {
	type service struct {
		Environment             map[string]string
		Volumes, Ports, Command []string
		Restart                 string
		Grace                   string `yaml:"stop_grace_period"`
	}
	var base, over struct{ Services map[string]service }
	text, err := os.ReadFile(filepath.Join("..", "..", "docker-compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &base); err != nil {
		t.Fatal(err)
	}
	made, err := Containers{}.overlay(&Config{Nodes: 4, Spare: 1, Dir: "/run-of-chaos", Clock: []time.Duration{5 * time.Second, 0}})
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(made), &over); err != nil {
		t.Fatalf("%v\n%s", err, made)
	}
	if len(over.Services) != 4 {
		t.Errorf("there are %d services, want the four nodes:\n%s", len(over.Services), made)
	}
	for name, s := range over.Services {
		if len(s.Volumes) != 1 || s.Volumes[0] != "/run-of-chaos/rules:/etc/weir:ro" {
			t.Errorf("%s mounts %v", name, s.Volumes)
		}
		if wrong := strings.Join(s.Command, " "); (wrong == "serve --test-clock-offset 5s") != (name == "node-1") {
			t.Errorf("%s runs %q", name, wrong)
		}
	}
	third, fourth := base.Services["node-3"], over.Services["node-4"]
	want := maps.Clone(third.Environment)
	want["WEIR_NAME"], want["WEIR_ADVERTISE"] = "node-4", "node-4"
	if !maps.Equal(fourth.Environment, want) {
		t.Errorf("node-4 has the environment %v, want that of node-3, %v", fourth.Environment, want)
	}
	if fourth.Restart != third.Restart || fourth.Grace != third.Grace || len(third.Volumes) != 1 || !strings.HasSuffix(third.Volumes[0], ":/etc/weir:ro") {
		t.Errorf("node-4 is %+v, and node-3 %+v", fourth, third)
	}
}
