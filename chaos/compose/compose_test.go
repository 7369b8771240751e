package compose

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/chaos/docker"
)

const (
	users = 30 // each has a counter of 10 a day, the rule exports of deploy/weir/rules.yaml
	limit = 10
)

// A person builds the image by the Dockerfile and starts what docker-compose.yaml
// has, with the files of the repository alone.
func TestCompose(t *testing.T) {
	e := needEngine(t)
	e.image(t)
	t.Run("cluster", e.testCluster)
	t.Run("redis", e.testRedis)
	t.Run("chaos", e.testChaos)
}

// Three nodes count together; one of them is killed, the others go on; it comes
// back, and no count is lost.
func (e *engine) testCluster(t *testing.T) {
	p := e.project(t)
	p.compose("up", "-d", "--no-build")
	p.allReady("node-1", "node-2", "node-3")
	p.healthy("node-1", "node-2", "node-3")
	p.stranger()

	// One shared counter for each user, seen through every port.
	for u := range users {
		for n := range limit / 2 {
			node := fmt.Sprintf("node-%d", 1+(u+n)%3)
			if a := p.check(node, u); !a.Allowed || a.Limits[0].Remaining != limit-n-1 {
				t.Fatalf("user %d at %s, check %d: %+v", u, node, n+1, a)
			}
		}
	}
	eventually(t, "all that was answered has a copy", func() bool {
		return p.gauge("weir_replication_unacknowledged_cost") == 0 && p.gauge("weir_partitions_unsettled") == 0
	})

	killed := p.id("node-2")
	e.run(t, "kill", killed)
	byPolicy := 0
	for u := range users {
		byPolicy += p.exhaust([]string{"node-1", "node-3"}, u)
	}
	t.Logf("of the checks after node-2 was killed, policies answered %d", byPolicy)

	p.compose("up", "-d", "--no-build", "node-2")
	p.allReady("node-1", "node-2", "node-3")
	p.healthy("node-2")
	eventually(t, "three members are active everywhere, and settled", func() bool {
		return p.gauge(`weir_members{state="active"}`) == 9 && p.gauge("weir_partitions_unsettled") == 0
	})
	for u := range users {
		for _, node := range []string{"node-2", "node-1", "node-3"} {
			if a := p.check(node, u); a.Allowed || a.Source != "owner" && a.Source != "heir" {
				t.Errorf("user %d at %s, after all came back: %+v", u, node, a)
			}
		}
	}
	p.roll()
	p.tools()
}

// roll replaces the members by deploy/compose/roll.sh, and no counter is lost.
func (p *project) roll() {
	p.t.Helper()
	before := p.id("node-2")
	if out, err := p.Script(p.t.Context(), filepath.Join(p.Dir, "deploy", "compose", "roll.sh"),
		"--no-build"); err != nil {
		p.t.Fatalf("%v\n%s", err, out)
	}
	if p.id("node-2") == before {
		p.t.Error("node-2 was not replaced")
	}
	for u := range users {
		if a := p.check("node-2", u); a.Allowed || a.Source != "owner" && a.Source != "heir" {
			p.t.Errorf("user %d, after all were replaced: %+v", u, a)
		}
	}
}

// Two nodes of the profile redis count in one Redis.
func (e *engine) testRedis(t *testing.T) {
	e.base(t, docker.RedisImage)
	p := e.project(t, "redis")
	p.compose("up", "-d", "--no-build", "redis-node-1", "redis-node-2")
	p.allReady("redis-node-1", "redis-node-2")
	eventually(t, "Redis decides", func() bool {
		return p.check("redis-node-1", 100).Source == "redis" && p.check("redis-node-2", 100).Source == "redis"
	})
	for n := range limit {
		node := fmt.Sprintf("redis-node-%d", 1+n%2)
		if a := p.check(node, 1); !a.Allowed || a.Source != "redis" || a.Limits[0].Remaining != limit-n-1 {
			t.Errorf("check %d at %s: %+v", n+1, node, a)
		}
	}
	for _, node := range []string{"redis-node-1", "redis-node-2"} {
		if a := p.check(node, 1); a.Allowed {
			t.Errorf("%s lets pass what the other counted: %+v", node, a)
		}
	}
}

// project is docker-compose.yaml at work, under a name and on ports of its own.
type project struct {
	*docker.Project
	t     *testing.T
	e     *engine
	addr  map[string]string // of HTTP, by service
	admin map[string]string // of administration, of the members
}

// project unpacks the clean tree and chooses ports. At the end of the test
// nothing is left of it.
func (e *engine) project(t *testing.T, profiles ...string) *project {
	t.Helper()
	p := &project{t: t, e: e, addr: map[string]string{}, admin: map[string]string{}}
	p.Project = &docker.Project{
		Engine: e.Engine, Dir: e.tree(t), Name: fmt.Sprintf("weirtest%d%s", os.Getpid(), strings.Join(profiles, "")),
		Profiles: profiles, Env: []string{"WEIR_IMAGE=" + e.tag()},
	}
	// Metrics are for the network of the containers, so the test has them published.
	published := new(strings.Builder)
	published.WriteString("services:\n")
	for _, s := range []string{"node-1", "node-2", "node-3", "redis-node-1", "redis-node-2"} {
		free, err := docker.Ports(t.Context(), 3)
		if err != nil {
			t.Fatal(err)
		}
		p.addr[s] = "127.0.0.1:" + free[0]
		upper := strings.ToUpper(strings.ReplaceAll(s, "-", "_"))
		if strings.HasPrefix(s, "node-") {
			p.admin[s] = "127.0.0.1:" + free[2]
			fmt.Fprintf(published, "  %s: {ports: [\"%s:8082\"]}\n", s, p.admin[s])
		}
		p.Env = append(p.Env, "WEIR_PORT_"+upper+"="+free[0], "WEIR_GRPC_PORT_"+upper+"="+free[1])
	}
	overlay := filepath.Join(t.TempDir(), "admin.yaml")
	if err := os.WriteFile(overlay, []byte(published.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Files = []string{filepath.Join(p.Dir, "docker-compose.yaml"), overlay}
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := p.Command(context.Background(), "logs", "--no-color", "--tail", "60") // more to read, if there is
			t.Log(out)
		}
		if err := p.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *project) compose(args ...string) string {
	p.t.Helper()
	out, err := p.Command(context.Background(), args...)
	if err != nil {
		p.t.Fatal(err)
	}
	return out
}

// id is the container of a service.
func (p *project) id(service string) string {
	p.t.Helper()
	id, err := p.ID(context.Background(), service)
	if err != nil {
		p.t.Fatal(err)
	}
	return id
}

func (p *project) allReady(services ...string) {
	p.t.Helper()
	for _, s := range services {
		eventually(p.t, s+" is ready", func() bool { return status("http://"+p.addr[s]+"/readyz") == http.StatusOK })
	}
}

// healthy waits for the image's own health check.
func (p *project) healthy(services ...string) {
	p.t.Helper()
	for _, s := range services {
		id := p.id(s)
		eventually(p.t, s+" is healthy", func() bool {
			return strings.TrimSpace(p.e.run(p.t, "inspect", "--format", "{{.State.Health.Status}}", id)) == "healthy"
		})
	}
}

// stranger runs a node in the members' network that has their secret and gossip key, but no
// certificate. They say why they refuse it, and do not count it.
func (p *project) stranger() {
	p.t.Helper()
	name := p.Name + "-stranger"
	p.e.run(p.t, "run", "-d", "--name", name, "--network", p.Name+"_default", "-v", p.Name+"_node-3-keys:/keys:ro",
		p.e.tag(),
		"serve", "--name", "node-9", "--join", "node-1:7946", "--gossip-addr", ":7946", "--peer-addr", ":7947",
		"--secret-file", "/keys/secret", "--gossip-key-file", "/keys/gossip.key", "--insecure")
	defer p.e.run(p.t, "rm", "-fv", name)
	eventually(p.t, "a node without a certificate is refused", func() bool {
		return strings.Contains(p.compose("logs", "--no-color", "node-1", "node-2", "node-3"), "it does not speak TLS")
	})
	if n := p.gauge(`weir_members{state="active"}`); n != 9 {
		p.t.Errorf("three members see %.0f active ones beside a stranger, want 9", n)
	}
}

// tools runs both programs of the image, in a container that is there.
func (p *project) tools() {
	p.t.Helper()
	for program, want := range map[string]string{"/node": "node v0.0.0-test ", "/weir": "weir "} {
		if out := p.compose("exec", "-T", "node-1", program, "version"); !strings.HasPrefix(out, want) {
			p.t.Errorf("%s version says %q, want %q first", program, out, want)
		}
	}
	// The tool asks the node of its container, and the others across the network.
	if out := p.compose("exec", "-T", "node-1", "/weir", "members"); strings.Count(out, " active ") != 3 ||
		strings.Contains(out, "not asked") {
		p.t.Errorf("/weir members says %s", out)
	}
	if out := p.compose("exec", "-T", "node-1", "/weir", "top"); !strings.Contains(out, "exports:user-") ||
		strings.Contains(out, "not asked") {
		p.t.Errorf("/weir top says %s", out)
	}
	if user := strings.TrimSpace(p.e.run(p.t, "inspect", "--format", "{{.Config.User}}",
		p.id("node-1"))); user != "65532:65532" {
		p.t.Errorf("the node runs as %q", user)
	}
}

// answer is what the test reads of one.
type answer struct {
	Allowed bool
	Source  string
	Limits  []struct{ Remaining int }
}

// ask asks for one unit of a user's counter. Late or wrong answers are errors.
func (p *project) ask(node string, user int) (a answer, err error) {
	resp, err := (&http.Client{Timeout: 3 * time.Second}).Get(fmt.Sprintf("http://%s/v1/check?path=/exports&user=user-%d",
		p.addr[node], user))
	if err != nil {
		return a, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		return a, fmt.Errorf("%s: %s", resp.Status, text)
	}
	if err := json.Unmarshal(text, &a); err != nil || len(a.Limits) != 1 {
		return a, fmt.Errorf("%w: %s", err, text)
	}
	return a, nil
}

func (p *project) check(node string, user int) answer {
	p.t.Helper()
	a, err := p.ask(node, user)
	if err != nil {
		p.t.Fatalf("user %d at %s: %v", user, node, err)
	}
	return a
}

// exhaust asks until an owner or heir says no, and wants the half that was left
// to be admitted by them: no more, and no less. It returns how many checks a
// policy answered meanwhile.
func (p *project) exhaust(nodes []string, user int) (byPolicy int) {
	p.t.Helper()
	for admitted, n := 0, 0; n < 20*limit; n++ {
		a := p.check(nodes[n%len(nodes)], user)
		switch {
		case a.Source != "owner" && a.Source != "heir":
			byPolicy++
		case a.Allowed:
			admitted++
		default:
			if admitted != limit/2 {
				p.t.Errorf("user %d was granted %d of the %d units that were left", user, admitted, limit/2)
			}
			return byPolicy
		}
	}
	p.t.Errorf("user %d is never denied by an owner or an heir", user)
	return byPolicy
}

// gauge sums a metric over the three nodes, -1 if one does not tell it.
func (p *project) gauge(name string) float64 {
	sum := 0.0
	for _, node := range []string{"node-1", "node-2", "node-3"} {
		resp, err := (&http.Client{Timeout: 3 * time.Second}).Get("http://" + p.admin[node] + "/metrics")
		if err != nil {
			return -1
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		_, rest, found := strings.Cut(string(text), "\n"+name+" ")
		var v float64
		if _, bad := fmt.Sscan(rest, &v); err != nil || !found || bad != nil {
			return -1
		}
		sum += v
	}
	return sum
}
