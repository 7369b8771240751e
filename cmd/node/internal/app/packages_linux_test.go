package app

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// packaged returns a file of the packages for Debian and RPM.
func packaged(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "deploy", "packages", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// says runs a program with an input, and returns all that it prints.
func says(t *testing.T, input, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v: %s", program, err, out)
	}
	return string(out)
}

// systemd finds nothing wrong with the unit, and rates what is left open to it at most 1.6 of 10.
func TestUnit(t *testing.T) {
	unit := packaged(t, "weir.service")
	root := t.TempDir()
	for name, text := range map[string]string{
		"usr/bin/weir-node": "#!/bin/sh\n", "bin/sh": "#!\n", "usr/lib/systemd/system/weir.service": unit,
		"usr/lib/systemd/system/sysinit.target": "[Unit]\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o600)
		if strings.Contains(name, "bin/") {
			mode = 0o700
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	if want := "\nRestartPreventExitStatus=" + strconv.Itoa(ExitUsage) + "\n"; !strings.Contains(unit, want) {
		t.Errorf("it starts again and again with settings that are not valid: want %q", want)
	}
	if ExitUsage == 2 {
		t.Error("a node that panics ends with the same status, and is not started again")
	}
	// It may find fault with other units of the machine.
	out := says(t, "", "systemd-analyze", "--root="+root, "--man=no", "verify", "weir.service")
	if strings.Contains(out, "weir.service") {
		t.Error(out)
	}
	says(t, "", "systemd-analyze", "security", "--no-pager", "--offline=true", "--threshold=16",
		filepath.Join(root, "usr/lib/systemd/system/weir.service"))
}

// The variables in the unit and in weir.env are settings of the node, with valid
// values. What a paragraph of weir.env suggests goes with what the unit sets, and the rules have no
// warnings.
func TestPackagedSettings(t *testing.T) {
	var unit []string
	for _, m := range regexp.MustCompile(`(?m)^Environment=(WEIR_[A-Z_]+)=(.*)$`).FindAllStringSubmatch(
		packaged(t, "weir.service"), -1) {
		unit = append(unit, m[1]+"="+m[2])
	}
	if len(unit) != 3 || strings.Contains(strings.Join(unit, ""), "%") {
		t.Fatalf("the unit sets %q: a name that follows the machine's does not fit the data of a renamed one", unit)
	}
	for _, paragraph := range strings.Split(packaged(t, "weir.env"), "\n\n") {
		environ := map[string]string{}
		for _, v := range unit {
			name, value, _ := strings.Cut(v, "=")
			environ[name] = value
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			if name, value, found := strings.Cut(strings.TrimPrefix(line, "#"), "="); found && strings.HasPrefix(name, "WEIR_") {
				environ[name] = value
			}
		}
		if environ["WEIR_JOIN"] != "" && environ["WEIR_NAME"] == "node" {
			t.Errorf("members of a cluster have the same name:\n%s", paragraph)
		}
		var all []string
		for name, value := range environ {
			all = append(all, name+"="+value)
		}
		o := newOptions()
		cmd := (&app{}).serveCommand()
		cmd.ResetFlags()
		o.addServeFlags(cmd.Flags())
		warnings, err := readEnvironment(cmd, all, settings())
		if err == nil {
			err = o.validate(cmd)
		}
		if err != nil || len(warnings) > 0 {
			t.Errorf("%v %q\n%s", err, warnings, paragraph)
		}
	}
	rules := file(t, "rules.yaml", packaged(t, "rules.yaml"))
	r := begin(t, World{}, free("--rules", rules, "--strict")...)
	r.until("the node is ready")
	r.signals <- syscall.SIGTERM
	r.end(ExitOK)
}

// The members of weir.env start, beyond loopback, with the files that the command of the template makes. Only addresses
// and directories are others than what is printed.
func TestPackagedCluster(t *testing.T) {
	text := packaged(t, "weir.env")
	command := regexp.MustCompile(`(?m)^#   mkdir keys authority && weir-node (keys .*)$`).FindStringSubmatch(text)
	if command == nil {
		t.Fatal("no command makes the keys")
	}
	dir := t.TempDir()
	args := strings.Fields(command[1])
	for i, a := range args {
		if strings.HasSuffix(a, "/") {
			args[i] = filepath.Join(dir, a)
			if err := os.MkdirAll(args[i], 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	if status, _, said := run(t, nil, args...); status != ExitOK {
		t.Fatalf("%v: %d %s", args, status, said)
	}
	environ := []string{"WEIR_RULES=" + file(t, "rules.yaml", packaged(t, "rules.yaml")),
		"WEIR_DATA_DIR=" + filepath.Join(dir, "data")}
	_, text, _ = strings.Cut(text, "# Three machines")
	text, _, _ = strings.Cut(text, "\n\n")
	for _, m := range regexp.MustCompile(`(?m)^#(WEIR_[A-Z_]+)=(.*)$`).FindAllStringSubmatch(text, -1) {
		value := m[2]
		switch m[1] {
		case "WEIR_PEER_ADDR", "WEIR_GOSSIP_ADDR":
			value = "0.0.0.0:0" // any interface, as printed
		case "WEIR_JOIN":
			value = "127.0.0.1:1"
		}
		environ = append(environ, m[1]+"="+strings.Replace(value, "/etc/weir", filepath.Join(dir, "keys"), 1))
	}
	r := begin(t, World{Environ: environ}, free()...)
	r.until("the node listens")
	r.signals <- syscall.SIGTERM
	r.end(ExitOK)
}

// The service manager is told when the node serves, and when it stops.
func TestNotify(t *testing.T) {
	at := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: at, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r := begin(t, World{Environ: []string{"NOTIFY_SOCKET=" + at}}, free()...)
	for _, want := range []string{"READY=1", "STOPPING=1"} {
		if err := l.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		said := make([]byte, 100)
		n, err := l.Read(said)
		if err != nil || string(said[:n]) != want {
			t.Fatalf("%q, %v; want %q", said[:n], err, want)
		}
		if want == "READY=1" {
			r.signals <- syscall.SIGTERM
		}
	}
	r.end(ExitOK)
	gone := begin(t, World{Environ: []string{"NOTIFY_SOCKET=" + at + "-none"}}, free()...)
	gone.until("the service manager cannot be told READY=1")
	gone.signals <- syscall.SIGTERM
	gone.end(ExitOK)
}

// As packages install it, the program calls itself weir-node: in its help, its errors, its version, its
// manual page and its completion, which bash and roff can read.
func TestCalledWeirNode(t *testing.T) {
	called := func(args ...string) string {
		var out bytes.Buffer
		Run(t.Context(), args, World{Name: "/usr/bin/weir-node", Out: &out, Err: &out})
		return out.String()
	}
	other := regexp.MustCompile(`(?m)(^| )node (serve|demo|health|keys|version)`)
	for args, want := range map[string]string{
		"--help": "  weir-node serve --rules rules.yaml\n", "serve --help": "  weir-node serve [flags]\n",
		"serve --rule x": "weir-node: there is no flag --rule: did you mean --rules? See \"weir-node serve --help\"\n",
		"version":        "weir-node ", "demo --help": "  weir-node demo\n", "completion bash": "__start_weir-node",
		"keys --help": "  weir-node keys ",
	} {
		out := called(strings.Fields(args)...)
		if !strings.Contains(out, want) || other.MatchString(out) {
			t.Errorf("%s: %s", args, out)
		}
	}
	if out := says(t, called("completion", "bash"), "bash", "-n"); out != "" {
		t.Error(out)
	}
	page := called("man")
	if out := says(t, page, "groff", "-man", "-ww", "-z"); out != "" {
		t.Error(out)
	}
	shown := says(t, page, "groff", "-man", "-Tascii", "-P-c", "-rLL=500n")
	for _, flag := range settings() {
		if !strings.Contains(page, `\fB\-\-`+strings.ReplaceAll(flag, "-", `\-`)+`\fR`) {
			t.Errorf("--%s is not on the manual page", flag)
		}
	}
	if !strings.Contains(shown, "weir-node - run Weir") || strings.Contains(page, "clock") {
		t.Errorf("the manual page is\n%s", shown)
	}
}
