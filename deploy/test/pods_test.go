package deploytest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/chaos/docker"
	corev1 "k8s.io/api/core/v1"
)

// soon is how long a test waits for what must happen. None waits for it to pass.
const soon = 60 * time.Second

// The pods of the chart, as containers with what their specification says of user, file system,
// capabilities, resources, environment, arguments and volumes, come up as one cluster: they find
// each other by the name of the headless service, count together, and lose nothing when each is
// ended and started anew.
func TestPods(t *testing.T) {
	if os.Getenv("WEIR_COMPOSE") == "" {
		t.Skip("it builds an image, for a minute or more: make pods-test runs it")
	}
	e, err := docker.Find(t.Context())
	if err != nil {
		_, _ = fmt.Printf("\n*** %s is NOT run: %v ***\n\n", t.Name(), err) // go test shows no log of what passes
		t.Skip(err)
	}
	p := newPods(t, e)
	for i := range p.addr {
		p.start(i)
	}
	p.ready()

	const limit = 12
	for n := range limit {
		if a := p.check(n % 3); !a.Allowed || a.Limits[0].Remaining != limit-n-1 {
			t.Fatalf("check %d: %+v", n+1, a)
		}
	}
	for i := range p.addr {
		p.must("exec", p.name(i), "/weir", "members")
		if a := p.check(i); a.Allowed {
			t.Errorf("pod %d lets pass what others counted: %+v", i, a)
		}
		if response, err := p.get(i, 8082, "/metrics"); err == nil {
			_ = response.Body.Close()
			t.Errorf("the administration of pod %d can be reached from outside", i)
		}
	}

	// As an update does: each ends within its grace period, comes back under another address, and
	// is ready before the next one goes.
	for i := range p.addr {
		grace := *p.pod.TerminationGracePeriodSeconds
		p.must("stop", "--time", fmt.Sprint(grace), p.name(i))
		if code := strings.TrimSpace(p.must("inspect", "--format", "{{.State.ExitCode}}", p.name(i))); code != "0" {
			t.Fatalf("pod %d ended with status %s:\n%s", i, code, p.logs(i))
		}
		p.must("rm", p.name(i))
		p.addr[i] = fmt.Sprintf("%s.%d", p.prefix, 20+i)
		p.start(i)
		p.ready()
		if a := p.check(i); a.Allowed {
			t.Errorf("after pod %d came back: %+v", i, a)
		}
	}
}

// pods are the pods of the chart as containers.
type pods struct {
	t          *testing.T
	e          *docker.Engine
	id         string // of the run: network, volume, image, and the beginning of names
	prefix     string // of addresses
	pod        corev1.PodSpec
	members    string // the name of the headless service
	rules      string // directory with what the ConfigMap has
	addr       []string
	httpClient *http.Client
}

// newPods builds the image, renders the chart, and makes the network and the keys. At the end of
// the test nothing is left of it.
func newPods(t *testing.T, e *docker.Engine) *pods {
	t.Helper()
	all := decode(t, render(t, "pods.yaml"))
	set := all.sets[0]
	p := &pods{
		t: t, e: e, id: fmt.Sprintf("weirpods%d", os.Getpid()), pod: set.Spec.Template.Spec, members: set.Spec.ServiceName,
		rules: t.TempDir(), addr: make([]string, *set.Spec.Replicas), httpClient: &http.Client{Timeout: 2 * time.Second},
	}
	for name, text := range all.configs[0].Data {
		if err := os.WriteFile(filepath.Join(p.rules, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.base()
	log := filepath.Join(t.TempDir(), "build.log")
	guard, err := docker.Watch(p.id, log, p.id+":test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(p.remove(), e.Forget(context.Background(), log, p.id+":test"), guard.Release()); err != nil {
			t.Error(err)
		}
	})
	p.image(log)
	p.network()
	p.must("volume", "create", "--label", p.label(), p.id)
	p.must("run", "--rm", "--label", p.label(), "--network", "none", "-v", p.id+":/keys", p.id+":test", "keys", "/keys")
	return p
}

// base makes sure that the image is there by which ours is built, for as long as the test lasts.
func (p *pods) base() {
	t := p.t
	t.Helper()
	if err := p.e.Have(t.Context(), docker.GoImage); err != nil {
		t.Logf("%v: a stand-in is made from this machine's own", err)
		if err := p.e.StandIn(t.Context(), docker.GoImage); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.e.Remove(context.Background(), docker.GoImage); err != nil {
				t.Error(err)
			}
		})
	}
}

// image builds the image of what is committed.
func (p *pods) image(log string) {
	t := p.t
	t.Helper()
	tree := t.TempDir()
	script(t, filepath.Join("..", ".."), nil, "bash", "-euo", "pipefail", "-c", `git archive HEAD | tar -C "$1" -xf -`,
		"bash", tree)
	if err := p.e.Build(t.Context(), tree, p.id+":test", "v0.0.0-test", log); err != nil {
		t.Fatal(err)
	}
}

// network makes a network whose addresses nobody has.
func (p *pods) network() {
	p.t.Helper()
	var said string
	for range 20 {
		p.prefix = fmt.Sprintf("10.%d.%d", 100+rand.IntN(100), rand.IntN(256))
		var err error
		if said, err = p.e.Run(p.t.Context(), "network", "create", "--label", p.label(), "--subnet", p.prefix+".0/24",
			p.id); err == nil {
			for i := range p.addr {
				p.addr[i] = fmt.Sprintf("%s.%d", p.prefix, 10+i)
			}
			return
		}
	}
	p.t.Fatalf("no network can be made: %s", said)
}

// label marks everything of the run, for the guard.
func (p *pods) label() string { return "com.docker.compose.project=" + p.id }

func (p *pods) name(i int) string { return fmt.Sprintf("%s-%d", p.id, i) }

// start runs a pod as a container, as its specification says.
func (p *pods) start(i int) {
	p.t.Helper()
	c := p.pod.Containers[0]
	fields := map[string]string{"metadata.name": fmt.Sprintf("weir-%d", i), "status.podIP": p.addr[i]}
	s := p.pod.SecurityContext
	args := []string{
		"run", "-d", "--label", p.label(), "--name", p.name(i), "--hostname", fields["metadata.name"],
		"--network", p.id, "--ip", p.addr[i], "--network-alias", p.members,
		"--user", fmt.Sprintf("%d:%d", *s.RunAsUser, *s.RunAsGroup),
		"--memory", fmt.Sprint(c.Resources.Limits.Memory().Value()), "--cpus", c.Resources.Limits.Cpu().String(),
	}
	if *c.SecurityContext.ReadOnlyRootFilesystem {
		args = append(args, "--read-only")
	}
	if !*c.SecurityContext.AllowPrivilegeEscalation {
		args = append(args, "--security-opt", "no-new-privileges")
	}
	for _, drop := range c.SecurityContext.Capabilities.Drop {
		args = append(args, "--cap-drop", string(drop))
	}
	from := map[string]string{"rules": p.rules, "keys": p.id}
	for _, m := range c.VolumeMounts {
		args = append(args, "-v", from[m.Name]+":"+m.MountPath+":ro")
	}
	var expand []string
	for _, v := range c.Env {
		value := v.Value
		switch from := v.ValueFrom; {
		case from == nil:
		case from.FieldRef != nil:
			value = fields[from.FieldRef.FieldPath]
		default:
			value = "3" // EXPECT
		}
		args = append(args, "-e", v.Name+"="+value)
		expand = append(expand, "$("+v.Name+")", value)
	}
	args = append(args, p.id+":test")
	for _, a := range c.Args {
		args = append(args, strings.NewReplacer(expand...).Replace(a))
	}
	p.must(args...)
}

// ready waits until the readiness and liveness probes of all pods succeed, and each sees all.
func (p *pods) ready() {
	p.t.Helper()
	c := p.pod.Containers[0]
	for i := range p.addr {
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			at := slices.IndexFunc(c.Ports, func(o corev1.ContainerPort) bool { return o.Name == probe.HTTPGet.Port.StrVal })
			p.eventually(i, probe.HTTPGet.Path, func() bool {
				response, err := p.get(i, int(c.Ports[at].ContainerPort), probe.HTTPGet.Path)
				if err != nil {
					return false
				}
				return response.Body.Close() == nil && response.StatusCode == http.StatusOK
			})
		}
		p.eventually(i, "three active members", func() bool {
			out, err := p.e.Run(p.t.Context(), "exec", p.name(i), "/weir", "members")
			return err == nil && strings.Count(out, " active ") == len(p.addr)
		})
	}
}

func (p *pods) eventually(i int, what string, is func() bool) {
	p.t.Helper()
	deadline := time.After(soon)
	for !is() {
		select {
		case <-deadline:
			p.t.Fatalf("pod %d: no %s within %v:\n%s", i, what, soon, p.logs(i))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// answer is what the test reads of an answer.
type answer struct {
	Allowed bool
	Limits  []struct{ Remaining int }
}

func (p *pods) check(i int) (a answer) {
	p.t.Helper()
	response, err := p.get(i, 8080, "/v1/check?path=/towns&user=ada")
	if err != nil {
		p.t.Fatal(err)
	}
	if err := errors.Join(json.NewDecoder(response.Body).Decode(&a), response.Body.Close()); err != nil ||
		len(a.Limits) != 1 {
		p.t.Fatalf("%v, %+v", err, a)
	}
	return a
}

func (p *pods) get(i, port int, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet,
		fmt.Sprintf("http://%s:%d%s", p.addr[i], port, path), nil)
	if err != nil {
		return nil, err
	}
	return p.httpClient.Do(request)
}

func (p *pods) must(args ...string) string {
	p.t.Helper()
	out, err := p.e.Run(p.t.Context(), args...)
	if err != nil {
		p.t.Fatalf("docker %v: %v\n%s", args, err, out)
	}
	return out
}

func (p *pods) logs(i int) string {
	out, err := p.e.Run(context.Background(), "logs", "--tail", "60", p.name(i))
	return fmt.Sprint(out, err)
}

// remove removes the containers, the volume and the network.
func (p *pods) remove() (err error) {
	for i := range p.addr {
		_, _ = p.e.Run(context.Background(), "rm", "-fv", p.name(i)) // it may not have been started
	}
	for _, what := range []string{"volume", "network"} {
		if out, failed := p.e.Run(context.Background(), what, "rm", p.id); failed != nil &&
			!strings.Contains(out, "No such") {
			err = errors.Join(err, fmt.Errorf("%s %s: %w: %s", what, p.id, failed, out))
		}
	}
	return err
}

// script runs a program in a directory, with more environment, and returns what it prints.
func script(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", name, err, out, said.String())
	}
	return string(out)
}
