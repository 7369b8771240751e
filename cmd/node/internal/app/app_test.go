package app

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cmd/node/internal/server"
	"github.com/weirlimit/weir/diskstore"
	"github.com/weirlimit/weir/internal/built"
	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/limiter/table"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stream is an output that may be read while it is written.
type stream struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// running is the program at work.
type running struct {
	t        *testing.T
	out, err stream
	signals  chan os.Signal
	status   chan int
}

// begin runs the program beside the test.
func begin(t *testing.T, w World, args ...string) *running {
	t.Helper()
	return beginUnder(t.Context(), t, w, args...)
}

func beginUnder(ctx context.Context, t *testing.T, w World, args ...string) *running {
	t.Helper()
	r := &running{t: t, signals: make(chan os.Signal, 16), status: make(chan int, 1)}
	w.Out, w.Err, w.Signals = &r.out, &r.err, r.signals
	go func() { r.status <- Run(ctx, args, w) }()
	return r
}

// end waits for the program to end.
func (r *running) end(want int) {
	r.t.Helper()
	select {
	case got := <-r.status:
		if got != want {
			r.t.Errorf("status %d, want %d\n%s%s", got, want, &r.out, &r.err)
		}
	case <-time.After(30 * time.Second):
		r.t.Fatalf("it does not end\n%s%s", &r.out, &r.err)
	}
}

// until waits for the program to say something.
func (r *running) until(text string) {
	r.t.Helper()
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	end := time.After(20 * time.Second)
	for !strings.Contains(r.err.String()+r.out.String(), text) {
		select {
		case <-look.C:
		case <-end:
			r.t.Fatalf("%q was never said\n%s%s", text, &r.out, &r.err)
		}
	}
}

// run runs the program to its end.
func run(t *testing.T, environ []string, args ...string) (status int, out, err string) {
	t.Helper()
	var o, e bytes.Buffer
	status = Run(t.Context(), args, World{Out: &o, Err: &e, Environ: environ})
	return status, o.String(), e.String()
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	full := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return full
}

const townRules = `version: 1
rules:
  - {name: towns, match: {path: "^/towns"}, key: [path, user], limits: [2/minute]}
`

// free are the flags of a node on free ports.
func free(more ...string) []string {
	return append([]string{"serve", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr",
		"127.0.0.1:0", "--health-addr", "127.0.0.1:0"}, more...)
}

// The expected output for invalid command lines and environments.
func TestBadUsage(t *testing.T) {
	taken, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	used := taken.Addr().String()
	big := file(t, "big", strings.Repeat("x", 65<<10))
	for name, c := range map[string]struct {
		environ string
		args    string
		status  int
		want    string // with " … " between parts that must all be there
	}{
		"Envoy without limits": {"", "serve --envoy-addr :1", 64,
			"--envoy-addr needs limits: give --envoy-config DIRECTORY, --envoy-xds HOST:PORT"},
		"a division of nothing": {"", "serve --rlqs-division fast", 64, "--rlqs-division is for --rlqs-addr: give both"},
		"quotas without limits": {"", "serve --rlqs-addr :1 --envoy-domain d", 64, "--rlqs-addr needs limits: give"},
		"quotas of Redis":       {"", "serve --rlqs-addr :1 --envoy-config d --backend redis --redis-addr r:1", 64, "lends"},
		"Envoy at no address":   {"", "serve --envoy-xds a:1", 64, "and --rlqs-addr: give one of them too"},
		"two kinds of limits": {"", "serve --envoy-addr :1 --envoy-xds a:1 --envoy-config d", 64,
			"from --envoy-config or from --envoy-xds: give one of them"},
		"xDS without a server": {"", "serve --envoy-addr :1 --envoy-config d --envoy-xds-ca c", 64,
			"are for --envoy-xds: give it too"},
		"xDS without a port": {"", "serve --envoy-addr :1 --envoy-xds a", 64,
			`--envoy-xds "a" is not valid: give HOST:PORT`},
		"xDS without a key": {"", "serve --envoy-addr :1 --envoy-xds a:1 --envoy-xds-cert c", 64, "give both or neither"},
		"near limit NaN": {"", "serve --envoy-addr :1 --envoy-config d --envoy-near-limit nan", 64,
			"give a part above 0 and up to 1"},
		"near limit above 1": {"", "serve --envoy-addr :1 --envoy-config d --envoy-near-limit 1.1", 64,
			"give a part above 0 and up to 1"},
		"stops in atomic mode": {"", "serve --envoy-addr :1 --envoy-config d --envoy-mode atomic --envoy-stop-when-over", 64,
			"is for --envoy-mode compat"},
		"two names of headers": {"", "serve --envoy-addr :1 --envoy-config d --envoy-header-names a,b", 64,
			"give three names"},
		"limits of Gubernator": {"", "serve --gubernator-addr :1", 64, "give --allow-request-limits too, or --permissions"},
		"a zone of no address": {"", "serve --gubernator-zone UTC", 64, "--gubernator-zone is for"},
		"five HTTP addresses": {"", "serve --envoy-addr :1 --envoy-config d --envoy-http-addr :1,:2,:3,:4,:5", 64,
			"give at most 4"},
		"an HTTP address": {"", "serve --envoy-addr :1 --envoy-config d --envoy-http-addr x", 64,
			`--envoy-http-addr "x" is not valid: give HOST:PORT`},
		"unknown command":     {"", "sevre", 64, `there is no command "sevre": did you mean "serve"? See "node --help"`},
		"nothing like it":     {"", "zzzzzz", 64, `there is no command "zzzzzz"; see "node --help"`},
		"help for no command": {"", "help dem", 64, `there is no command "dem": did you mean "demo"?`},
		"completion for none": {"", "completion tcsh", 64, `there is no completion for "tcsh"`},
		"unknown flag": {"", "serve --http-adr x", 64,
			"there is no flag --http-adr: did you mean --http-addr? See \"node serve --help\""},
		"unknown root flag":   {"", "--rule x", 64, "there is no flag --rule: did you mean --rules?"},
		"nothing like a flag": {"", "--zzzzzz", 64, "there is no flag --zzzzzz; see"},
		"unknown shorthand":   {"", "-z", 64, "unknown shorthand flag"},
		"later flag":          {"", "serve --tracing x", 64, "there is no flag --tracing"},
		"join without a port": {"", "serve --join node-1", 64, "give HOST:PORT of a member's gossip"},
		"join nobody's port":  {"", "serve --join node-1:7946,:1", 64, "give HOST:PORT of a member's gossip"},
		"a named address": {"", "serve --join dns+127.0.0.1:7946 --expect 3", 64,
			"dns+ is for a name that stands for all members"},
		"a name alone": {"", "serve --join dns+weir:7946", 64, "--join dns+HOST:PORT needs --expect"},
		"expected by nobody": {"", "serve --expect 3", 64,
			"--expect is for a member of a cluster: give --name or --join too"},
		"expected nowhere": {"", "serve --name a --expect 3", 64, "--expect needs addresses to join by"},
		"too many expected": {"", "serve --join a:1 --expect 257", 64,
			"--expect 257 is out of range: give the number of members, up to 256"},
		"less than none": {"", "serve --join a:1 --expect=-1", 64, "--expect -1 is out of range"},
		"ring of nobody": {"", "serve --share-ring", 64,
			"--share-ring is for a member of a cluster: give --name or --join too"},
		"join and redis": {"", "serve --name a --backend redis --redis-addr r:1", 64,
			"share counters without a cluster"},
		"advertise a port": {"", "serve --name a --advertise h:1", 64, "give the host alone"},
		"denials of nobody": {"", "serve --cached-denials", 64,
			"--cached-denials is for a member of a cluster: give --name or --join too"},
		"deadline of nobody": {"", "serve --deadline 15ms", 64,
			"--deadline is for a member of a cluster: give --name or --join too"},
		"copies at nobody": {"WEIR_REPLICATION=strict", "serve", 64,
			"--replication is for a member of a cluster: give --name or --join too"},
		"a name of two lines": {"WEIR_NAME=a b\nc", "serve", 64,
			`--name cannot be that: the name … "a b\nc" has a character that cannot be seen`},
		"a name and a space":   {"WEIR_NAME=a ", "serve", 64, `"a " begins or ends with a space: leave it out`},
		"no such replication":  {"", "serve --replication twice", 64, "give one of lag, strict, off"},
		"no time for owners":   {"", "serve --name a --deadline 0s", 64, "--deadline 0s is out of range"},
		"no port for members":  {"", "serve --name a --peer-addr=", 64, "--peer-addr and --gossip-addr must not be empty"},
		"arguments to serve":   {"", "serve rules.yaml", 64, `"node serve" takes no arguments, but "rules.yaml" was given`},
		"arguments to demo":    {"", "demo x", 64, "takes no arguments"},
		"arguments to version": {"", "version x", 64, "takes no arguments"},
		"port alone":           {"", "--http-addr 8080", 64, `"8080" … --http-addr … give HOST:PORT, such as 127.0.0.1:8080`},
		"port too large":       {"", "--grpc-addr 127.0.0.1:65536", 64, "give HOST:PORT"},
		"port by name":         {"", "--grpc-addr 127.0.0.1:http", 64, "give HOST:PORT"},
		"no address": {"", "--http-addr= --grpc-addr=127.0.0.1:0", 64,
			"--http-addr and --grpc-addr must not be empty"},
		"admin port alone": {"", "--admin-addr 8082", 64,
			`"8082" … --admin-addr … give HOST:PORT, such as 127.0.0.1:8082, unix:PATH, or off`},
		"admin at no path": {"WEIR_ADMIN_ADDR=unix:", "", 64, "give unix:PATH, such as"},
		"health at a socket": {"", "--health-addr unix:/x", 64,
			"--health-addr … give HOST:PORT, such as 127.0.0.1:8083, or off"},
		"max-keys zero":         {"", "--max-keys 0", 64, "--max-keys … give a whole number above 0"},
		"max-bytes too small":   {"", "--max-bytes 7MiB", 64, "--max-bytes … give a size of 8MiB or more, such as 512MiB"},
		"max-bytes too large":   {"", "--max-bytes 9999999TB", 64, "give a size of 8MiB or more"},
		"max-bytes a word":      {"", "--max-bytes much", 64, "or none for no bound"},
		"max-keys a word":       {"", "--max-keys many", 64, "give a whole number above 0"},
		"overflow":              {"", "--overflow drop", 64, "--overflow … give one of deny, allow"},
		"log level":             {"", "--log-level loud", 64, "--log-level … give one of debug, info, warn, error"},
		"shutdown-timeout":      {"", "--shutdown-timeout 0", 64, "--shutdown-timeout 0s is out of range: give 100ms to 1h"},
		"shutdown-timeout long": {"", "--shutdown-timeout 2h", 64, "is out of range"},
		"shutdown-delay": {"", "--shutdown-delay 20s", 64,
			"--shutdown-delay 20s is out of range: it is part of --shutdown-timeout, which is 15s"},
		"shutdown-delay minus": {"", "--shutdown-delay -1s", 64, "is out of range"},
		"cluster-name":         {"", "--cluster-name=", 64, "--cluster-name must not be empty"},
		"bad variable": {"WEIR_MAX_KEYS=many", "serve", 64,
			`WEIR_MAX_KEYS="many" in the environment: … give a whole number above 0`},
		"bad variable for demo": {"WEIR_HTTP_ADDR=x", "demo", 64, `WEIR_HTTP_ADDR="x" in the environment: … give HOST:PORT`},
		"bad boolean":           {"WEIR_ALLOW_RESET=maybe", "", 64, "in the environment: give true or false"},
		"bad duration": {"WEIR_SHUTDOWN_DELAY=5", "", 64,
			`WEIR_SHUTDOWN_DELAY="5" in the environment: give a time such as 1h30m, 5s or 100ms`},
		"duration without unit": {"", "--shutdown-delay 5", 64, `"--shutdown-delay" flag: give a time such as 1h30m`},
		"boolean":               {"", "--strict=maybe", 64, `"--strict" flag: give true or false`},
		"not a whole number":    {"", "--expect x", 64, `"--expect" flag: give a whole number`},
		"not a number":          {"", "--trace-ratio x", 64, `"--trace-ratio" flag: give a number`},
		"much too large":        {"", "--expect 99999999999999999999", 64, `"--expect" flag: give a number nearer to 0`},
		"no secret":             {"", "--secret-file none", 1, "secret file none cannot be opened: no such file"},
		"empty secret":          {"", "--secret-file " + file(t, "s", "\r\n"), 1, "is empty"},
		"big secret":            {"", "--secret-file " + big, 1, "is larger than 64 KiB"},
		"secret a directory":    {"", "--secret-file " + t.TempDir(), 1, "is a directory; name a regular file"},
		"port in use": {"", strings.Join(free("--http-addr", used), " "), 1,
			"cannot listen on " + used + ": another program has that port; stop it, or choose another address with --http-addr"},
		"demo, port in use": {"", "demo --http-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0 --grpc-addr " + used, 1,
			"cannot listen on " + used +
				" … with --grpc-addr … node demo --http-addr 127.0.0.1:0 --grpc-addr 127.0.0.1:0 --admin-addr 127.0.0.1:0"},
		"backend": {"", "--backend disk", 64, "--backend … give one of memory, redis"},
		"redis without address": {"", "--backend redis", 64,
			"--backend redis needs --redis-addr: give HOST:PORT, such as 127.0.0.1:6379"},
		"redis address only": {"WEIR_REDIS_ADDR=r:1", "", 64,
			"--redis-addr is given, but counters are kept in memory: give --backend redis too"},
		"another flag of redis without it": {"", "--redis-prefix x:", 64,
			"--redis-prefix is given, but counters are kept in memory: give --backend redis too"},
		"redis user without password": {"", "--backend redis --redis-addr a:1 --redis-username u", 64,
			"--redis-username is for --redis-password-file"},
		"no redis-prefix":    {"", "--backend redis --redis-addr a:1 --redis-prefix=", 64, "--redis-prefix is empty"},
		"redis port alone":   {"", "--redis-addr 6379", 64, "--redis-addr … give HOST:PORT"},
		"redis without host": {"", "--redis-addr :6379", 64, "the host is missing"},
		"redis addresses":    {"", "--redis-addr a:1,,b:2", 64, "several with commas between"},
		"redis of both kinds": {"", "--backend redis --redis-addr a:1 --redis-cluster --redis-sentinel-master m", 64,
			"are both given"},
		"redis-db": {"", "--backend redis --redis-addr a:1,b:2 --redis-db 1", 64, "--redis-db 1 is out of range"},
		"redis-timeout": {"", "--backend redis --redis-addr a:1 --redis-timeout 0", 64,
			"--redis-timeout 0s is out of range: give 1ms to 1m"},
		"redis-ca-file": {"", "--backend redis --redis-addr a:1 --redis-ca-file x", 64,
			"--redis-ca-file is for --redis-tls"},
		"redis-cert": {"", "--backend redis --redis-addr a:1 --redis-cert x --redis-key y", 64,
			"--redis-cert and --redis-key are for --redis-tls"},
		"redis-key": {"", "--backend redis --redis-addr a:1 --redis-tls --redis-cert x", 64,
			"give both or neither"},
		"redis-cert and key": {"", "--backend redis --redis-addr a:1 --redis-tls --redis-cert " + file(t, "cert", "x") +
			" --redis-key " + file(t, "key", "y"), 1, "cannot be used"},
		"redis-prefix": {"", "--backend redis --redis-addr a:1 --redis-prefix a{b}", 64, "has a brace"},
		"redis-replicas": {"", "--backend redis --redis-addr a:1 --redis-replicas 17", 64,
			"--redis-replicas 17 is out of range: give 0 to 16"},
		"redis-nodes": {"", "--redis-nodes 0", 64, "--redis-nodes … give a whole number above 0"},
		"redis password file": {"", "--backend redis --redis-addr a:1 --redis-password-file none", 1,
			"password file none cannot be opened: no such file"},
		"redis certificates": {"", "--backend redis --redis-addr a:1 --redis-tls --redis-ca-file " + file(t, "ca", "x"), 1,
			"has no certificate in PEM form"},
		"no rules file": {"", strings.Join(free("--rules", "none.yaml"), " "), 1,
			"rules file none.yaml cannot be opened: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errs := run(t, []string{c.environ}, strings.Fields(c.args)...)
			if status != c.status || out != "" {
				t.Errorf("status %d, want %d; on standard output: %q", status, c.status, out)
			}
			for _, want := range strings.Split(c.want, " … ") {
				if !strings.Contains(errs, want) && !strings.Contains(errs, strings.ReplaceAll(want, `"`, `\"`)) {
					t.Errorf("%q is not in:\n%s", want, errs)
				}
			}
			if strings.Contains(errs, "goroutine") {
				t.Error(errs)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, command := range []string{"", "serve", "demo", "version", "help", "completion"} {
		status, out, errs := run(t, nil, strings.Fields(command+" --help")...)
		if status != ExitOK || errs != "" || !strings.Contains(out, "Usage:") {
			t.Errorf("%s: status %d, %s%s", command, status, out, errs)
		}
		if command != "completion" && !strings.Contains(out, "Examples:\n  ") {
			t.Errorf("%s: the help has no example", command)
		}
		for _, line := range strings.Split(out, "\n") {
			if command != "completion" && len(line) > 130 {
				t.Errorf("%s: a line of %d characters: %s", command, len(line), line)
			}
		}
	}
	_, flag, _ := run(t, nil, "serve", "--help")
	if _, help, _ := run(t, nil, "help", "serve"); help != flag {
		t.Errorf("help serve: %s", help)
	}
	for _, text := range []string{"127.0.0.1:8080", "127.0.0.1:8081", "10000000", "15s", `"weir"`} {
		if !strings.Contains(flag, "(default "+text+")") {
			t.Errorf("the default %s is not told:\n%s", text, flag)
		}
	}
	_, root, _ := run(t, nil, "--help")
	for _, f := range settings() {
		if !strings.Contains(flag, "--"+f+" ") || !strings.Contains(root, "--"+f+" ") {
			t.Errorf("--%s is not in the help of both", f)
		}
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if status, out, _ := run(t, nil, "completion", shell); status != ExitOK || !strings.Contains(out, "node") {
			t.Errorf("%s: %d %s", shell, status, out)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"de"}, "demo\t"},
		{[]string{"serve", "--htt"}, "--http-addr\t"},
		{[]string{"serve", "--overflow", ""}, "deny\nallow\n:4\n"},
		{[]string{"serve", "--log-level", ""}, "debug\ninfo\nwarn\nerror\n:4\n"},
		{[]string{"serve", "--rules", ""}, "yaml\nyml\njson\n:8\n"},
		{[]string{"serve", "--secret-file", ""}, ":0\n"},
		{[]string{"demo", "--http-addr", ""}, ":4\n"},
	} {
		if _, out, _ := run(t, nil, append([]string{"__complete"}, c.args...)...); !strings.HasPrefix(out, c.want) {
			t.Errorf("%q completes to %q", c.args, out)
		}
	}
}

func TestVersion(t *testing.T) {
	status, out, _ := run(t, nil, "version")
	if status != ExitOK || !strings.HasPrefix(out, "node ") || !strings.Contains(out, " go1.") ||
		!strings.Contains(out, " tzdata 20") {
		t.Errorf("%d %s", status, out)
	}
	if _, flag, _ := run(t, nil, "--version"); flag != out {
		t.Errorf("--version: %s", flag)
	}
}

// record is a line of the log.
type record map[string]any

// records reads a log that is JSON from its first byte to its last.
func records(t *testing.T, log string) []record {
	t.Helper()
	var out []record
	for line := range strings.Lines(log) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		out = append(out, r)
	}
	return out
}

func get(t *testing.T, url string) int {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

// A duration in the log has its unit, for machines as for people.
func TestLoggedDurations(t *testing.T) {
	for _, person := range []bool{false, true} {
		var out bytes.Buffer
		newLogger(&out, person, "info").With("every", time.Minute).WithGroup("g").Info("done", "took", 1500*time.Millisecond)
		if got := out.String(); !strings.Contains(got, "1.5s") || !strings.Contains(got, "1m0s") {
			t.Errorf("person %t: %s", person, got)
		}
	}
}

// The life of a node: it starts, without a command too, decides, reloads and
// stops; its log is JSON.
func TestServe(t *testing.T) {
	for _, args := range [][]string{free(), free()[1:]} {
		rules := file(t, "rules.yaml", townRules)
		r := begin(t, World{}, append(args, "--rules", rules, "--secret-file", file(t, "secret", "s3cret\n"))...)
		r.until("the node is ready")
		all := records(t, r.err.String())
		ready := all[len(all)-1]
		address, ok := ready["http"].(string)
		if !ok || ready["grpc"] == nil || ready["admin"] == nil || ready["health"] == nil || ready["rules"] != 1.0 ||
			ready["version"] != built.Version() || len(all) != 1 {
			t.Fatalf("%v", all)
		}
		for i := range 3 {
			if status := get(t, "http://"+address+"/v1/check?path=/towns&user=ada"); (status == 429) != (i == 2) {
				t.Errorf("check %d: %d", i, status)
			}
		}
		r.signals <- syscall.SIGHUP
		r.until("rules are in force")
		r.signals <- syscall.SIGTERM
		r.end(ExitOK)
		if got := r.err.String(); !strings.Contains(got,
			`"stopping: requests in progress will be answered","because":"terminated"`) ||
			!strings.Contains(got, `"msg":"stopped"`) {
			t.Error(got)
		}
		records(t, r.err.String())
		if r.out.String() != "" {
			t.Errorf("on standard output: %s", &r.out)
		}
	}
}

// On a terminal, the log and the errors of starting are text, and a node without rules
// says so.
func TestServeOnATerminal(t *testing.T) {
	r := begin(t, World{ErrTerminal: true}, free("--log-level", "warn")...)
	r.until("level=WARN msg=\"there are no rules, so every request is allowed; give --rules FILE\"\n")
	r.signals <- os.Interrupt
	r.end(ExitOK)
	if strings.Contains(r.err.String(), "level=INFO") {
		t.Errorf("more than was asked for: %s", &r.err)
	}
	bad := file(t, "rules.yaml", "version: 1\nrules:\n  - {name: a}\n  - {name: b}\n")
	r = begin(t, World{ErrTerminal: true}, free("--rules", bad)...)
	r.end(ExitFailed)
	if got := r.err.String(); !strings.HasPrefix(got, bad+":3:5: ") || !strings.Contains(got, "\n"+bad+":4:5: ") ||
		!strings.HasSuffix(got, "\nnode: rules file "+bad+" is not valid: 2 problems\n") {
		t.Error(got)
	}
	one := file(t, "rules.yaml", "version: 2\nrules: []\n")
	r = begin(t, World{ErrTerminal: true}, free("--rules", one)...)
	r.end(ExitFailed)
	if got := r.err.String(); !strings.HasSuffix(got, " is not valid: 1 problem\n") {
		t.Error(got)
	}
}

func TestDemo(t *testing.T) {
	r := begin(t, World{}, "demo", "--http-addr", "127.0.0.1:0", "--grpc-addr", "127.0.0.1:0", "--admin-addr",
		"127.0.0.1:0")
	r.until("   1s   ada ")
	r.signals <- syscall.SIGHUP // changes nothing
	r.until("   2s   ada ")
	r.signals <- os.Interrupt
	r.end(ExitOK)
	if !strings.Contains(r.out.String(), "\n  bob ") || r.err.String() != "" {
		t.Errorf("%s%s", &r.out, &r.err)
	}
}

// Signals within a second are one: "timeout" sends two. Later ones end the program at once.
func TestSecondSignal(t *testing.T) {
	second := make(chan time.Time)
	for _, later := range []bool{false, true} {
		signals, stopped, release := make(chan os.Signal), make(chan error, 1), make(chan struct{})
		var log stream
		a := &app{World{Signals: signals, After: func(time.Duration) <-chan time.Time { return second }}}
		go func() {
			stopped <- a.stop(slog.New(slog.NewTextHandler(&log, nil)), stopper(release), "terminated")
		}()
		signals <- syscall.SIGTERM // is taken
		if later {
			second <- time.Time{}
			signals <- syscall.SIGTERM
		} else {
			signals <- os.Interrupt
			close(release)
		}
		if err := <-stopped; (err != nil) != later || strings.Contains(log.String(), "told to stop again") != later {
			t.Fatalf("later %v: %v\n%s", later, err, &log)
		}
		if later {
			close(release)
		}
	}
}

// stopper is a node that stops when it is closed.
type stopper chan struct{}

func (s stopper) Stop() error { <-s; return nil }

func TestEnvironment(t *testing.T) {
	rules := file(t, "rules.yaml", townRules)
	r := begin(t, World{Environ: []string{
		"WEIR_HTTP_ADDR=127.0.0.1:0", "WEIR_GRPC_ADDR=256.0.0.1:0", "WEIR_RULES=" + rules, "WEIR_LOG_LEVEL=info",
		"WEIR_OVERFLOW=",
		"WEIR_HTTP_ADR=x", "WEIR_COLOUR=red", "PATH=/bin", "WEIRD=1",
		// The variables that Kubernetes sets in a container next to services "weir" and
		// "weir-grpc".
		"WEIR_SERVICE_HOST=10.0.0.1", "WEIR_SERVICE_PORT=80", "WEIR_SERVICE_PORT_HTTP=80", "WEIR_PORT=tcp://10.0.0.1:80",
		"WEIR_PORT_80_TCP=tcp://10.0.0.1:80", "WEIR_PORT_80_TCP_PROTO=tcp", "WEIR_PORT_80_TCP_PORT=80",
		"WEIR_PORT_80_TCP_ADDR=10.0.0.1",
		"WEIR_GRPC_SERVICE_HOST=10.0.0.1", "WEIR_TOOL_CA=ca.crt", "WEIR_GRPC_PORT_80_TCP_ADDR=10.0.0.1",
	}}, "--grpc-addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0") // which win
	r.until("the node is ready")
	r.signals <- syscall.SIGTERM
	r.end(ExitOK)
	var warnings []string
	for _, rec := range records(t, r.err.String()) {
		if rec["level"] == "WARN" {
			warnings = append(warnings, rec["msg"].(string))
		}
		if rec["msg"] == "the node is ready" && rec["rules"] != 1.0 {
			t.Errorf("%v", rec)
		}
	}
	want := []string{"there is no setting WEIR_COLOUR", "there is no setting WEIR_HTTP_ADR: did you mean WEIR_HTTP_ADDR?"}
	if !slices.Equal(warnings, want) {
		t.Errorf("%q", warnings)
	}
}

// Each flag has its variable, each reaches the config, and the defaults are
// those of the library.
func TestOptions(t *testing.T) {
	values := map[string]string{
		"rules": "r.yaml", "permissions": "w.yaml", "audit": "a.jsonl", "strict": "true", "http-addr": "h:1",
		"grpc-addr": "g:2", "admin-addr": "p:3", "admin-host": "x, y", "http-host": "z", "health-addr": "Off",
		"log-level": "DEBUG", "denial-bytes": "8MiB", "denial-names": "hash", "denial-log": "d.jsonl",
		"shutdown-timeout": "9s", "shutdown-delay": "2s", "max-keys": "7", "max-bytes": "2GiB", "overflow": "allow",
		"allow-request-limits": "true",
		"max-connections":      "11", "max-connections-per-ip": "12", "max-connection-age": "13s", "client-timeout": "14s",
		"allow-reset": "true", "allow-refunds": "true", "share-ring": "true", "cluster-name": "c",
		"secret-file": file(t, "secret", "s\n"), "second-secret-file": file(t, "second", "s2\n"), "spoe-listen": "o:7",
		"backend": "redis", "redis-addr": "a:1,/b", "redis-cluster": "true", "redis-sentinel-master": "m", "redis-db": "4",
		"redis-username": "u", "redis-password-file": file(t, "password", "p\r\n"), "redis-tls": "true", "redis-ca-file": "",
		"redis-timeout": "15ms", "redis-nodes": "3", "redis-prefix": "w2:", "redis-replicas": "2", "redis-cert": "",
		"redis-key":  "",
		"envoy-addr": "e:5", "envoy-config": "dir", "envoy-mode": "Atomic", "envoy-algorithm": "gcra", "envoy-domain": "x,y",
		"envoy-merge-domains": "true", "envoy-ignore-dotfiles": "true", "envoy-start-without-config": "true",
		"tls": "Optional", "tls-cert": "c.crt", "tls-key": "c.key", "client-ca": "ca.crt", "client-cert": "Required",
		"admin-client-ca": "aca.crt", "admin-client-cert": "optional",
		"gubernator-addr": "g:8", "gubernator-http-addr": "g:9", "gubernator-zone": "Europe/Berlin",
		"redis-listen": "r:6", "auth-proxy": "10.0.0.0/8, 127.0.0.1", "auth-uri-header": "a", "auth-method-header": "b",
		"auth-address-header": "c", "auth-user-header": "d", "auth-group-header": "e", "auth-id-header": "f", "envoy-id": "g",
		"envoy-hold":   "1m",
		"envoy-shadow": "true", "envoy-quota": "true", "envoy-headers": "true", "envoy-request-headers": "true",
		"envoy-header-names": "a,b,c",
		"envoy-body":         file(t, "body", "too much"), "envoy-metadata": "true", "envoy-stop-when-over": "true",
		"envoy-near-limit": "0.5", "rlqs-addr": "q:9", "rlqs-division": "Fast",
		"envoy-http-addr": "h:6, h:7", "envoy-health-needs-config": "true", "envoy-xds": "x:8", "envoy-xds-node": "id",
		"envoy-xds-ca": "xca", "envoy-xds-server-name": "xn",
		"envoy-xds-cert": "xc", "envoy-xds-key": "xk",
		"trace-to": "http://c:6", "trace-ratio": "0.5",
		"name": "n", "join": "j:1, dns+k:2", "expect": "3", "peer-addr": "p:4", "gossip-addr": "g:5", "advertise": "a",
		"deadline": "20ms", "replication": "Off", "cached-denials": "true", "insecure": "true",
		"peer-cert": "tls.crt", "peer-key": "tls.key", "peer-ca": "ca.crt", "peer-uri": "spiffe://x/{name}",
		"peer-tls": "Optional", "data-dir": "dd", "persist-interval": "16s", "restore-wait": "17s", "discard-data": "true",
		"gossip-key-file": file(t, "keys",
			"# new\nMDEyMzQ1Njc4OWFiY2RlZg==\n\nMDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n"),
	}
	o := newOptions()
	o.member = true
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.addServeFlags(f)
	for _, name := range settings() {
		if _, tested := values[name]; !tested {
			t.Errorf("--%s is not tested here", name)
		}
		if err := f.Set(name, values[name]); err != nil {
			t.Error(err)
		}
	}
	c, err := o.config(nil)
	if m := c.Cluster; err == nil && (m.PeerCertFile != "tls.crt" || m.PeerKeyFile != "tls.key" ||
		m.PeerCAFile != "ca.crt" || m.PeerURI != "spiffe://x/{name}" || !m.PeerTLSOptional) {
		t.Errorf("certificates: %+v", m)
	}
	if err != nil || c.RulesFile != "r.yaml" || c.Permissions != "w.yaml" || c.Audit != "a.jsonl" || !c.StrictRules ||
		c.HTTPAddr != "h:1" || c.RedisListen != "r:6" || c.GRPCAddr != "g:2" || c.AdminAddr != "p:3" ||
		!slices.Equal(c.AdminHosts, []string{"x", "y"}) || !slices.Equal(c.HTTPHosts, []string{"z"}) || c.HealthAddr != "" ||
		c.ShutdownTimeout != 9*time.Second || c.ShutdownDelay != 2*time.Second || c.MaxKeys != 7 || c.MaxBytes != 2<<30 ||
		c.Overflow != weir.OverflowAllow || !c.AllowRequestLimits || !c.AllowReset || !c.AllowRefunds ||
		!c.ShareRing || c.ClusterName != "c" || c.Replication != weir.ReplicationOff || string(c.Secret) != "s" ||
		string(c.SecondSecret) != "s2" || c.SPOEListen != "o:7" || o.logLevel.value != "debug" ||
		c.Denials != (server.DenialsConfig{Bytes: 8 << 20, Names: 1, Log: "d.jsonl"}) {
		t.Errorf("%+v, %v", c, err)
	}
	if c.Trace == nil || *c.Trace != (server.TraceConfig{Endpoint: "http://c:6", Ratio: 0.5}) {
		t.Errorf("traces: %+v", c.Trace)
	}
	if c.MaxConnections != 11 || c.MaxConnectionsPerAddress != 12 || c.MaxConnectionAge != 13*time.Second ||
		c.ClientTimeout != 14*time.Second {
		t.Errorf("%+v", c)
	}
	if m := c.Cluster; m == nil || m.Name != "n" || !slices.Equal(m.Join, []string{"j:1", "dns+k:2"}) || m.Expect != 3 ||
		m.PeerAddr != "p:4" || m.GossipAddr != "g:5" ||
		m.Advertise != "a" || m.Deadline != 20*time.Millisecond || !m.CachedDenials || !m.Insecure ||
		len(m.GossipKeys) != 2 || len(m.GossipKeys[0]) != 16 || len(m.GossipKeys[1]) != 32 || m.GossipKeyFile == "" ||
		m.Store != (diskstore.Dir{Path: "dd", Discard: true}) || m.PersistInterval != 16*time.Second ||
		m.RestoreWait != 17*time.Second {
		t.Errorf("%+v", m)
	}
	if e := c.Envoy; e == nil || e.Addr != "e:5" || e.QuotaAddr != "q:9" || e.Dir != "dir" || !e.Files.MergeDomains ||
		e.Options.Mode != envoy.Atomic || e.Options.Algorithm.String() != "gcra" ||
		!e.Options.Overrides["x"] || !e.Options.Overrides["y"] || !e.Options.Shadow || !e.Options.Quota ||
		!e.Options.Headers {
		t.Errorf("%+v", e)
	}
	if e := c.Envoy; !e.IgnoreDotFiles || !e.StartWithoutConfig {
		t.Errorf("%+v", e)
	}
	if e := c.Envoy; !e.Options.RequestHeaders || e.Options.HeaderNames != [3]string{"a", "b", "c"} ||
		string(e.Options.Body) != "too much" || !e.Options.Metadata ||
		!e.Options.StopWhenOver || e.Options.NearLimit != 0.5 || !slices.Equal(e.HTTPAddrs, []string{"h:6", "h:7"}) ||
		!e.NeedsConfig || e.XDS == nil || *e.XDS != (server.EnvoyXDS{Addr: "x:8", NodeID: "id", CAFile: "xca",
		ServerName: "xn", CertFile: "xc", KeyFile: "xk"}) {
		t.Errorf("%+v, %+v", e, e.XDS)
	}
	if g := c.Gubernator; g != (server.GubernatorConfig{Addr: "g:8", HTTPAddr: "g:9", Zone: "Europe/Berlin"}) {
		t.Errorf("%+v", g)
	}
	if a := c.Auth; a == nil || fmt.Sprint(a.Proxies) != "[10.0.0.0/8 127.0.0.1/32]" || a.URI != "a" || a.Method != "b" ||
		a.Address != "c" || a.User != "d" || a.Group != "e" {
		t.Errorf("%+v", a)
	}
	if want := (server.TLSConfig{CertFile: "c.crt", KeyFile: "c.key", ClientCAFile: "ca.crt", AdminCAFile: "aca.crt",
		ClientCert: tls.RequireAndVerifyClientCert, AdminCert: tls.VerifyClientCertIfGiven, Optional: true}); c.TLS == nil ||
		*c.TLS != want {
		t.Errorf("%+v", c.TLS)
	}
	if r := c.Redis; r == nil || !slices.Equal(r.Addrs, []string{"a:1", "/b"}) || !r.Cluster || r.SentinelMaster != "m" ||
		r.DB != 4 ||
		r.Username != "u" || r.Password != "p" || r.TLS == nil || r.Timeout != 15*time.Millisecond || r.Nodes != 3 ||
		r.Prefix != "w2:" || r.Replicas != 2 {
		t.Errorf("%+v", r)
	}
	for name, keys := range map[string]string{"no base64": "x\n", "a short key": "AAAA\n", "none": "# a\n"} {
		o := newOptions()
		o.member, o.cluster.gossipKeyFile = true, file(t, "keys", keys)
		if _, err := o.config(nil); err == nil || !strings.Contains(err.Error(), "gossip key file") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if c, err := newOptions().config(nil); err != nil || c.Redis != nil || c.Cluster != nil {
		t.Errorf("without --backend redis: %+v, %v", c.Redis, err)
	}
	if defaultMaxKeys != table.DefaultMaxKeys {
		t.Errorf("the help says that --max-keys is %d", defaultMaxKeys)
	}
	if got := envName("allow-request-limits"); got != "WEIR_ALLOW_REQUEST_LIMITS" {
		t.Error(got)
	}
}

// The manual has every flag with its variable and default, and no other.
func TestManual(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "run.md"))
	if err != nil {
		t.Fatal(err)
	}
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	newOptions().addServeFlags(f)
	rows := 0
	f.VisitAll(func(f *pflag.Flag) {
		row := "\n| `--" + f.Name + "` | `" + envName(f.Name) + "` | "
		if f.DefValue != "" {
			row += "`" + f.DefValue + "` |"
		} else {
			row += "none"
		}
		if !strings.Contains(string(manual), row) {
			t.Errorf("the manual lacks%s", row)
		}
		rows++
	})
	if got := strings.Count(string(manual), "\n| `--"); got != rows {
		t.Errorf("the manual has %d flags, the program %d", got, rows)
	}
}

// A size may be given in any of the usual units.
func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"auto": 0, "none": -1, "8388608": 8 << 20, "9000000B": 9e6,
		"512MiB": 512 << 20, "2GB": 2e9, "1TiB": 1 << 40, "9000KB": 9e6, "9000KiB": 9000 << 10} {
		var s size
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%s is %d: %v", text, s, err)
		}
		var again size
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%s is shown as %s", text, s.String())
		}
	}
	for _, text := range []string{"", "0", "-8MiB", "8 MiB", "8mib", "1.5GiB", "GiB", "8388607", "2000TiB",
		"99999999999999999999"} {
		var s size
		if s.Set(text) == nil {
			t.Errorf("%q is taken as %d", text, s)
		}
	}
}
