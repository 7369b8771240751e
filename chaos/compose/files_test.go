package compose

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// root is the top of the repository.
var root = filepath.Join("..", "..")

// service is what these tests read of a service in docker-compose.yaml.
type service struct {
	Image       string            `yaml:"image"`
	Profiles    []string          `yaml:"profiles"`
	Environment map[string]string `yaml:"environment"`
	Command     any               `yaml:"command"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	ReadOnly    bool              `yaml:"read_only"`
	CapDrop     []string          `yaml:"cap_drop"`
	Security    []string          `yaml:"security_opt"`
	Memory      string            `yaml:"mem_limit"`
	// DependsOn is a list of names, or says for each what is waited for.
	DependsOn dependencies `yaml:"depends_on"`
}

// dependencies is what a service waits for; the short form is not read.
type dependencies map[string]struct{ Condition string }

// UnmarshalYAML implements yaml.InterfaceUnmarshaler.
func (d *dependencies) UnmarshalYAML(decode func(any) error) error {
	var short []string
	if decode(&short) == nil {
		return nil
	}
	return decode((*map[string]struct{ Condition string })(d))
}

// services reads docker-compose.yaml.
func services(t *testing.T) map[string]service {
	t.Helper()
	var file struct {
		Services map[string]service `yaml:"services"`
	}
	readYAML(t, "docker-compose.yaml", &file)
	return file.Services
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// Without a profile there are three nodes, what makes their keys, and nothing else; each
// node lists all of them, under its own name, and has the keys and its own certificate. None
// of them has the authority's key.
func TestThreeNodes(t *testing.T) {
	var plain []string
	for name, s := range services(t) {
		if len(s.Profiles) > 0 {
			continue
		}
		plain = append(plain, name)
		if name == "keys" {
			want := []any{"keys", "/members", "--authority", "/authority", "--apart", "--member", "node-1,node-2,node-3"}
			if !slices.Equal(s.Volumes, []string{"authority:/authority", "node-1-keys:/members/node-1",
				"node-2-keys:/members/node-2", "node-3-keys:/members/node-3"}) || !reflect.DeepEqual(s.Command, want) ||
				len(s.Ports) > 0 {
				t.Errorf("keys: %+v", s)
			}
			continue
		}
		for _, v := range s.Volumes {
			if from, _, _ := strings.Cut(v, ":"); from == "authority" ||
				strings.HasSuffix(from, "-keys") && from != name+"-keys" {
				t.Errorf("%s can make members, or be another: it mounts %s", name, v)
			}
		}
		for env, want := range map[string]string{"CERT": "/keys/" + name + "-peer.crt", "KEY": "/keys/" + name + "-peer.key",
			"CA": "/keys/peer-ca.crt"} {
			if got := s.Environment["WEIR_PEER_"+env]; got != want {
				t.Errorf("%s has WEIR_PEER_%s=%q, want %q", name, env, got, want)
			}
		}
		if s.Environment["WEIR_PEER_TLS"] != "" || s.Environment["WEIR_INSECURE"] != "" {
			t.Errorf("%s takes members without TLS: %v", name, s.Environment)
		}
		if s.Environment["WEIR_SECRET_FILE"] != "/keys/secret" ||
			s.Environment["WEIR_GOSSIP_KEY_FILE"] != "/keys/gossip.key" ||
			!slices.Contains(s.Volumes, name+"-keys:/keys:ro") ||
			s.DependsOn["keys"].Condition != "service_completed_successfully" {
			t.Errorf("%s is open to anyone in its network: %+v", name, s)
		}
		if s.Environment["WEIR_NAME"] != name || s.Environment["WEIR_ADVERTISE"] != name {
			t.Errorf("%s calls itself %q, at %q", name, s.Environment["WEIR_NAME"], s.Environment["WEIR_ADVERTISE"])
		}
		if want := "node-1:7946,node-2:7946,node-3:7946"; s.Environment["WEIR_JOIN"] != want {
			t.Errorf("%s joins %q, want %q", name, s.Environment["WEIR_JOIN"], want)
		}
	}
	slices.Sort(plain)
	if want := []string{"keys", "node-1", "node-2", "node-3"}; !slices.Equal(plain, want) {
		t.Errorf("services without a profile: %v, want %v", plain, want)
	}
}

// No service of the image can write a file or raise privileges, and the memory of a node has a
// bound that its counters fit into.
func TestConfinedServices(t *testing.T) {
	for name, s := range services(t) {
		if !strings.Contains(s.Image, "WEIR_IMAGE") {
			continue
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) ||
			!slices.Equal(s.Security, []string{"no-new-privileges:true"}) {
			t.Errorf("%s: %+v", name, s)
		}
		if name != "keys" && (s.Memory != "768m" || s.Environment["WEIR_MAX_KEYS"] != "500000" ||
			s.Environment["GOMEMLIMIT"] != "690MiB") {
			t.Errorf("%s has %s, %v", name, s.Memory, s.Environment)
		}
	}
}

// Both programs of the image say which version they are, by what the Dockerfile
// tells the linker.
func TestVersionOfTheImage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`-ldflags "([^"]*\$VERSION[^"]*)"`).FindSubmatch(text)
	if flags == nil {
		t.Fatal("the Dockerfile tells the linker no version")
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", dir+string(filepath.Separator),
		"-ldflags", strings.ReplaceAll(string(flags[1]), "$VERSION", "v0.0.0-test"), "./cmd/node", "./cmd/weir")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	for _, program := range []string{"node", "weir"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(dir, program), "version").CombinedOutput()
		if want := program + " v0.0.0-test "; err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("it says %q, not %q: %v", out, want, err)
		}
	}
}

// Nothing is published but on loopback, and no two services on one port.
func TestPublishedPorts(t *testing.T) {
	taken := map[string]string{}
	form := regexp.MustCompile(`^127\.0\.0\.1:\$\{WEIR_[A-Z0-9_]+:-([0-9]+)\}:[0-9]+$`)
	for name, s := range services(t) {
		for _, p := range s.Ports {
			m := form.FindStringSubmatch(p)
			if m == nil {
				t.Errorf("%s publishes %q, not on loopback or not to be changed", name, p)
				continue
			}
			if other := taken[m[1]]; other != "" {
				t.Errorf("%s and %s both publish %s", name, other, m[1])
			}
			taken[m[1]] = name
		}
	}
	for port, want := range map[string]string{
		"8080": "node-1", "8180": "node-2", "8280": "node-3", "8081": "node-1", "8181": "node-2", "8281": "node-3",
	} {
		if taken[port] != want {
			t.Errorf("port %s is %q's, want %s", port, taken[port], want)
		}
	}
}

// What services mount from the repository is there, and stays when the file in
// it is replaced: directories, never files alone.
func TestMountedDirectories(t *testing.T) {
	for name, s := range services(t) {
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if !strings.HasPrefix(from, "./") {
				continue
			}
			if info, err := os.Stat(filepath.Join(root, from)); err != nil || !info.IsDir() {
				t.Errorf("%s mounts %s, which is no directory: %v", name, from, err)
			}
		}
	}
}

// Prometheus asks every node at its own name and port, and no stranger.
func TestScrapedTargets(t *testing.T) {
	var file struct {
		Jobs []struct {
			Static []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, "deploy/prometheus/prometheus.yml", &file)
	var scraped, want []string
	for _, j := range file.Jobs {
		for _, s := range j.Static {
			scraped = append(scraped, s.Targets...)
		}
	}
	for name, s := range services(t) {
		if strings.Contains(s.Image, "WEIR_IMAGE") && name != "keys" {
			want = append(want, name+":8082") // where administration is
		}
	}
	slices.Sort(scraped)
	slices.Sort(want)
	if !slices.Equal(scraped, want) || len(want) != 5 {
		t.Errorf("Prometheus asks %v, but the nodes are %v", scraped, want)
	}
}

// Every panel asks the datasource that is provisioned, and the dashboard lies
// where its provider looks.
func TestProvisioning(t *testing.T) {
	var sources struct {
		Datasources []struct{ UID, URL string }
	}
	readYAML(t, "deploy/grafana/provisioning/datasources/prometheus.yml", &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Fatalf("datasources: %+v", sources)
	}
	d := readDashboard(t)
	for _, p := range d.Panels {
		if p.Datasource.UID != sources.Datasources[0].UID {
			t.Errorf("panel %q asks %q, which is not provisioned", p.Title, p.Datasource.UID)
		}
	}
	var providers struct {
		Providers []struct {
			Options struct{ Path string }
		}
	}
	readYAML(t, "deploy/grafana/provisioning/dashboards/weir.yml", &providers)
	grafana := services(t)["grafana"]
	if mount := "./deploy/grafana/dashboards:" + providers.Providers[0].Options.Path +
		":ro"; !slices.Contains(grafana.Volumes, mount) {
		t.Errorf("grafana mounts %v, want %s", grafana.Volumes, mount)
	}
	home := grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if home != providers.Providers[0].Options.Path+"/weir.json" {
		t.Errorf("home is %s", home)
	}
}

// dashboard is what these tests read of Grafana's file.
type dashboard struct {
	Panels []struct {
		Title      string
		Datasource struct{ UID string }
		Targets    []struct{ Expr, LegendFormat string }
	}
	Templating struct {
		List []struct{ Name, Query string }
	}
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "deploy", "grafana", "dashboards", "weir.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) == 0 {
		t.Fatal("the dashboard has no panels")
	}
	return d
}
