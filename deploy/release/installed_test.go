package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// soon is how long a test waits for what must happen. None waits for it to pass.
const soon = 60 * time.Second

// TestInstalled installs a release, and the next one over it: packages on clean systems, which systemd
// has started in containers; the image, without privileges; the chart, from a repository of charts.
func TestInstalled(t *testing.T) {
	if os.Getenv("WEIR_PACKAGES") == "" {
		t.Skip("it builds two releases and whole systems, for minutes: make packages-test runs it")
	}
	if out, err := exec.CommandContext(t.Context(), "docker", "version").CombinedOutput(); err != nil {
		_, _ = fmt.Printf("\n*** %s is NOT run: no Docker engine answers: %v %s ***\n\n", t.Name(), err, out)
		t.Skip(err)
	}
	old, next := built(t, "v1.2.3-rc.1"), built(t, "v1.2.3")
	for _, suite := range []string{"bookworm", "trixie"} {
		t.Run("deb on "+suite, func(t *testing.T) { testDeb(t, suite, old, next) })
	}
	t.Run("rpm", func(t *testing.T) { testRPM(t, old, next) })
	t.Run("image", func(t *testing.T) { testImage(t, next) })
	t.Run("chart", func(t *testing.T) { testChart(t, next) })
	t.Run("completions", func(t *testing.T) { testCompletions(t, next) })
}

// built returns the directory of a release of this machine's processor.
func built(t *testing.T, version string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "dist")
	script(t, repository(t), nil, "scripts/release.sh", out, version,
		"0123456789abcdef0123456789abcdef01234567", "1700000000", "linux/"+runtime.GOARCH)
	return out
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// one returns the only file of a release that fits a pattern.
func one(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %q, %v", pattern, found, err)
	}
	return found[0]
}

// machine is a system that systemd has started, in a container.
type machine struct {
	t    *testing.T
	name string
}

// boot starts a system of Debian with nothing on it but systemd and more. Its packages are fetched once.
func boot(t *testing.T, suite string, more ...string) *machine {
	t.Helper()
	image := "weir-test-" + suite + "-" + strings.Join(append([]string{"systemd"}, more...), "-")
	if exec.CommandContext(t.Context(), "docker", "image", "inspect", image).Run() != nil {
		base := filepath.Join(t.TempDir(), "base.tar")
		include := strings.Join(append([]string{"systemd-sysv", "dbus", "passwd"}, more...), ",")
		script(t, ".", nil, "mmdebstrap", "--quiet", "--variant=minbase", "--include="+include, suite, base)
		script(t, ".", nil, "docker", "import", base, image)
	}
	m := &machine{t, "weir-test-" + strconv.Itoa(os.Getpid()) + "-" + suite + strings.Join(more, "")}
	// systemd of trixie starts with old control groups only if it is told to.
	script(t, ".", nil, "docker", "run", "--detach", "--name", m.name, "--cap-add", "SYS_ADMIN",
		"--cap-add", "SYS_PTRACE", "--network", "none", "--cgroupns", "host",
		"--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--tmpfs", "/run", "--tmpfs", "/tmp",
		"--volume", "/sys/fs/cgroup:/sys/fs/cgroup", "--env", "container=docker",
		"--env", "SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1", image, "/sbin/init")
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "--force", m.name).Run() })
	m.until("systemctl is-system-running --wait", "running")
	return m
}

// sh runs a line on the machine, and returns what it prints.
func (m *machine) sh(line string) string {
	m.t.Helper()
	return script(m.t, ".", nil, "docker", "exec", m.name, "sh", "-c", line)
}

// fails runs a line that must not succeed, and returns all that it prints.
func (m *machine) fails(line string) string {
	m.t.Helper()
	out, err := exec.CommandContext(m.t.Context(), "docker", "exec", m.name, "sh", "-c", line).CombinedOutput()
	if err == nil {
		m.t.Errorf("%s: succeeds: %s", line, out)
	}
	return string(out)
}

// until waits for a line to print something.
func (m *machine) until(line, want string) {
	m.t.Helper()
	var out []byte
	for end := time.Now().Add(soon); time.Now().Before(end); {
		out, _ = exec.CommandContext(m.t.Context(), "docker", "exec", m.name, "sh", "-c", line).CombinedOutput()
		if strings.Contains(string(out), want) {
			return
		}
	}
	m.t.Fatalf("%s never says %q: %s", line, want, out)
}

func (m *machine) put(path, at string) {
	m.t.Helper()
	script(m.t, ".", nil, "docker", "cp", path, m.name+":"+at)
}

// files lists all that is on the machine, except for what any package leaves: logs, caches, and the copies that
// tools keep of the files that they changed.
func (m *machine) files() string {
	m.t.Helper()
	return m.sh(`find / -xdev \( -path /root -o -path /var/cache -o -path /var/log/journal -o -path /var/tmp \) -prune \
			-o -print |
		grep -vxE '/etc/(passwd|group|shadow|gshadow)-|/etc/\.pwd\.lock|/var/log/(dpkg|alternatives)\.log' |
		grep -vxE '/var/lib/dpkg/(status-old|triggers/.*)' |
		sort; getent passwd; getent group`)
}

const (
	check = "weir check /login --ip 203.0.113.7 --server 127.0.0.1:8081"
	edit  = `printf 'version: 1\nrules:\n  - {name: mine, match: {path: "^/login"}, key: [rule, ip], limits: [3/day]}\n' \
		>/etc/weir/rules.yaml`
)

// answers shows that the node of a version serves, under its user and limits.
func (m *machine) answers(version string) {
	m.t.Helper()
	m.until("weir-node health --ready", "it is ready")
	if says := m.sh("weir-node version; weir version"); strings.Count(says, " "+version+" (0123456789ab)") != 2 {
		m.t.Error(says)
	}
	says := m.sh("journalctl --quiet -u weir | grep 'node is ready' | tail -n 1")
	if !strings.Contains(says, `"version":"`+version+" ") {
		m.t.Error(says)
	}
	m.sh("systemctl is-active --quiet weir")
	const pid = "$(systemctl show -P MainPID weir)"
	status := m.sh("cat /proc/" + pid + "/status")
	for _, want := range []string{"NoNewPrivs:\t1\n", "CapBnd:\t0000000000000000\n", "CapEff:\t0000000000000000\n",
		"Seccomp:\t2\n"} {
		if !strings.Contains(status, want) {
			m.t.Errorf("want %q: %s", want, status)
		}
	}
	if owner := m.sh("stat -c %U /proc/" + pid + " /var/lib/weir /var/log/weir /run/weir | sort -u"); owner != "weir\n" {
		m.t.Errorf("the users are %q", owner)
	}
	for _, at := range []string{"/usr/x", "/etc/weir/x", "/var/x", "/home/x"} {
		if says := m.fails("nsenter -m -t " + pid + " touch " + at); !strings.Contains(says, "Read-only file system") {
			m.t.Error(says)
		}
	}
}

// edited shows that a change of the rules file is in force after a reload.
func (m *machine) edited() {
	m.t.Helper()
	if says := m.sh(check); !strings.Contains(says, "allowed by rule login") {
		m.t.Error(says)
	}
	m.sh(edit + "; systemctl reload weir; weir reload")
	m.until(check, "2 of 3 left")
}

// upgraded shows that the next version has the rules, and the counts, of the one before.
func (m *machine) upgraded() {
	m.t.Helper()
	m.answers("v1.2.3")
	if says := m.sh(check); !strings.Contains(says, "1 of 3 left") {
		m.t.Error(says)
	}
}

// testDeb installs, upgrades, removes, installs again and purges a package of Debian.
func testDeb(t *testing.T, suite, old, next string) {
	m := boot(t, suite)
	before := m.files()
	m.put(one(t, old, "*.deb"), "/root/old.deb")
	m.put(one(t, next, "*.deb"), "/root/next.deb")
	m.sh("dpkg -i /root/old.deb")
	m.sh("systemctl is-enabled weir")
	m.answers("v1.2.3-rc.1")
	m.edited()
	m.sh("dpkg -i /root/next.deb </dev/null")
	m.upgraded()

	m.sh("dpkg -r weir")
	m.fails("systemctl is-active weir")
	m.sh("grep -q mine /etc/weir/rules.yaml && test -d /var/lib/weir")
	m.sh("dpkg -i /root/next.deb </dev/null")
	m.answers("v1.2.3")
	if says := m.sh(check); !strings.Contains(says, "0 of 3 left") {
		t.Error(says)
	}
	m.fails(check) // the fourth

	m.sh("systemctl disable --now weir && dpkg -i /root/next.deb </dev/null")
	m.fails("systemctl is-active weir")
	m.sh("dpkg -P weir")
	if diff := cmp.Diff(strings.Split(before, "\n"), strings.Split(m.files(), "\n")); diff != "" {
		t.Errorf("a purge leaves (+):\n%s", diff)
	}
}

// testRPM does it with a package of RPM, on a system of Debian with rpm.
func testRPM(t *testing.T, old, next string) {
	m := boot(t, "bookworm", "rpm")
	before := m.files()
	m.put(one(t, old, "*.rpm"), "/root/old.rpm")
	m.put(one(t, next, "*.rpm"), "/root/next.rpm")
	m.sh("rpm --nodeps -i /root/old.rpm && systemctl is-enabled weir")
	m.fails("systemctl is-active weir")
	m.sh("systemctl start weir")
	m.answers("v1.2.3-rc.1")
	m.edited()
	m.sh("rpm --nodeps -U /root/next.rpm")
	m.upgraded()
	m.sh("rpm --verify --nodeps weir | grep -v /etc/weir/rules.yaml | { ! grep .; }")
	m.sh("rpm -e weir")
	m.fails("systemctl is-active weir")
	m.sh("grep -q mine /etc/weir/rules.yaml.rpmsave && rm -r /etc/weir /var/lib/weir /var/log/weir && userdel weir")
	left := m.sh("rm -rf /var/lib/rpm/*; true") + m.files()
	rpms := func(files string) (kept []string) {
		for line := range strings.SplitSeq(files, "\n") {
			if !strings.HasPrefix(line, "/var/lib/rpm/") {
				kept = append(kept, line)
			}
		}
		return kept
	}
	if diff := cmp.Diff(rpms(before), rpms(left)); diff != "" {
		t.Errorf("a removal leaves (+) more than what was changed:\n%s", diff)
	}
}

// testImage runs the image with no right to anything.
func testImage(t *testing.T, dir string) {
	script(t, ".", nil, "docker", "load", "--input", one(t, dir, "weir_*_image_*.tar"))
	name := "weir-test-" + strconv.Itoa(os.Getpid()) + "-image"
	script(t, ".", nil, "docker", "run", "--detach", "--name", name, "--read-only", "--cap-drop", "ALL",
		"--network", "none", "--security-opt", "no-new-privileges", "weir:1.2.3")
	t.Cleanup(func() { _ = exec.Command("docker", "rm", "--force", name).Run() })
	for end := time.Now().Add(soon); time.Now().Before(end); {
		if exec.CommandContext(t.Context(), "docker", "exec", name, "/node", "health", "--ready").Run() == nil {
			break
		}
	}
	script(t, ".", nil, "docker", "exec", name, "/node", "health", "--ready")
	says := script(t, ".", nil, "docker", "exec", name, "/weir", "check", "/x", "--server", "127.0.0.1:8081")
	if !strings.HasPrefix(says, "allowed") {
		t.Error(says)
	}
	if user := script(t, ".", nil, "docker", "inspect", "--format", "{{.Config.User}}", name); user != "65532:65532\n" {
		t.Error(user)
	}
	pid := strings.TrimSpace(script(t, ".", nil, "docker", "inspect", "--format", "{{.State.Pid}}", name))
	if status := read(t, "/proc", pid, "status"); !strings.Contains(status, "\nUid:\t65532\t65532\t65532\t65532\n") {
		t.Error(status)
	}
	if says := script(t, ".", nil, "docker", "exec", name, "/node", "version"); !strings.HasPrefix(says, "node v1.2.3 ") {
		t.Error(says)
	}
}

// testChart finds the chart in a repository of charts, and renders it.
func testChart(t *testing.T, dir string) {
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	home := t.TempDir()
	env := []string{"HELM_CONFIG_HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_DATA_HOME=" + home}
	helm := func(args ...string) string {
		t.Helper()
		return script(t, repository(t), env, "scripts/helm.sh", args...)
	}
	helm("repo", "add", "weir", server.URL)
	says := helm("search", "repo", "weir/weir", "--output", "json")
	if !strings.Contains(says, `"version":"1.2.3","app_version":"1.2.3"`) {
		t.Error(says)
	}
	values, err := filepath.Abs(filepath.Join("..", "test", "testdata", "least.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	says = helm("template", "limits", "weir/weir", "--kube-version", "1.33", "--values", values)
	if !strings.Contains(says, "kind: StatefulSet") || !strings.Contains(says, "registry.example.com/weir:1.2.3") {
		t.Error(says)
	}
	helm("lint", "--strict", one(t, dir, "weir-*.tgz"), "--kube-version", "1.33", "--values", values)
}

// testCompletions shows that the shells can read them.
func testCompletions(t *testing.T, dir string) {
	to := t.TempDir()
	script(t, ".", nil, "tar", "--strip-components=1", "-C", to, "-xzf", one(t, dir, "weir_*_linux_*.tar.gz"))
	for _, program := range []string{"weir", "weir-node"} {
		at := filepath.Join(to, "share")
		script(t, at, nil, "bash", "-n", program+".bash")
		script(t, at, nil, "zsh", "-n", "_"+program)
		script(t, at, nil, "fish", "--no-execute", program+".fish")
	}
	if says := script(t, to, []string{"PATH=" + to + ":" + os.Getenv("PATH")}, "fish", "--no-config", "-c",
		"source share/weir-node.fish; complete -C 'weir-node serve --log-level '"); !strings.Contains(says, "debug\ninfo") &&
		!strings.Contains(says, "debug\nerror") {
		t.Error(says)
	}
}
