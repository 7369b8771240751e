package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/transport"
)

// serveNode serves a decider until the test ends, and returns its addresses as
// --server takes them.
func serveNode(t *testing.T, d transport.Decider) (overGRPC, overHTTP string) {
	t.Helper()
	s, err := transport.NewServer(transport.Options{Decider: d, AllowRefunds: true, AllowReset: true})
	if err != nil {
		t.Fatal(err)
	}
	forGRPC, forHTTP := listen(t), listen(t)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(forGRPC, forHTTP); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return forGRPC.Addr().String(), "http://" + forHTTP.Addr().String()
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// frozen returns a node whose clock the test moves.
func frozen(t *testing.T, now func() time.Time) *weir.Node {
	t.Helper()
	n, err := weir.Open(t.Context(), weir.Config{Rules: []byte(checkRules), Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// C4: with its clock stopped a node decides as the same check under its rules
// file does, and what is printed is the same to the byte: over gRPC, over HTTP
// and without a network, in text and in JSON.
func TestCheckServer(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	rules := file(t, "rules.yaml", checkRules)
	at, err := time.Parse(time.RFC3339, noon)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("checks", func(t *testing.T) {
		for _, args := range []string{
			"/towns --user ada",
			"/towns --user ada --times 3",
			"/towns --user ada --times 3 --json",
			"/towns --user ada --json",
			"/towns --ip 10.0.0.1",
			"/towns --cost 0 --user bob",
			"/towns --cost 3 --user bob",
			"/towns --cost 2 --user bob --method POST",
			"/",
			"/free",
			"/plans --group staff --attr plan=gold --attr x=y=z --times 3",
			"/plans --group guests --attr plan=gold",
			"/login --user ada --times 2",
			"/shadowy --user ada --times 2",
			"/towns --user ada --times 3 --explain",
			"/towns --user ada --times 3 --explain --json",
			"/steps --user ada --times 2 --explain --json",
			"/login --user ada --explain --json",
			"/shadowy --user ada --times 2 --explain",
			"/search --user ada --times 2",
			"/search --user ada --times 2 --explain --json",
			"/partners --user ada --attr tz=Nowhere --json",
			"/partners --user ada --attr tz=Nowhere",
			"/ --explain --json",
			"/free --explain",
		} {
			local := person{now: at}.run(t, append([]string{"check", "--rules", rules, "--at", noon},
				strings.Fields(args)...)...)
			for form := range 3 {
				overGRPC, overHTTP := serveNode(t, frozen(t, func() time.Time { return at }))
				server := []string{overGRPC, overHTTP, overHTTP + "/"}[form]
				got := person{now: at}.run(t, append([]string{"check", "--server", server}, strings.Fields(args)...)...)
				if got != local {
					t.Errorf("%s at %s:\n%+v, but under the file\n%+v", args, server, got, local)
				}
			}
		}
	})
}

// A node counts: what one check took the next one lacks, until the clock of the
// node has moved.
func TestCheckServerCounts(t *testing.T) {
	var mu sync.Mutex
	now, _ := time.Parse(time.RFC3339, noon)
	clock := func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	overGRPC, overHTTP := serveNode(t, frozen(t, clock))
	for i, server := range []string{overGRPC, overHTTP, overGRPC} {
		if got := (person{}).run(t, "check", "/daily", "--user", "ada", "--server", server); (got.status == 0) != (i == 0) {
			t.Errorf("check %d: %+v", i, got)
		}
	}
	mu.Lock()
	now = now.Add(24 * time.Hour)
	mu.Unlock()
	if got := (person{}).run(t, "check", "/daily", "--user", "ada", "--server", overHTTP, "--every", "1ms", "--times",
		"2"); got.status != 3 || !strings.Contains(got.out, "\nallowed by rule daily\n") {
		t.Errorf("the next day: %+v", got)
	}
}

// never answers nothing, and broken is out of order.
type never struct{ *weir.Node }

func (never) CheckInto(ctx context.Context, _ *limiter.Request, _ *limiter.Decision) error {
	<-ctx.Done()
	return ctx.Err()
}

type broken struct{ *weir.Node }

func (broken) CheckInto(context.Context, *limiter.Request, *limiter.Decision) error {
	return errors.New("the node is stopping")
}

// mute does not explain, though it could.
type mute struct{ *weir.Node }

func (mute) Explain(context.Context, limiter.Request) (*limiter.Explanation, error) {
	return nil, fmt.Errorf("%w: ada", weir.ErrUnanswered)
}

// serveOld serves what knows checks and does not know of explanations.
func serveOld(t *testing.T) (overGRPC, overHTTP string) {
	t.Helper()
	s := grpc.NewServer()
	old := weirv1.Limiter_ServiceDesc
	old.Methods = slices.DeleteFunc(slices.Clone(old.Methods), func(m grpc.MethodDesc) bool {
		return m.MethodName == "Explain"
	})
	s.RegisterService(&old, weirv1.UnimplementedLimiterServer{})
	l, ended := listen(t), make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"type":"about:blank","title":"Not Found","status":404,"detail":"there is nothing at %s"}`,
			r.URL.Path)
	}))
	t.Cleanup(func() {
		page.Close()
		s.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), page.URL
}

// The expected output for a node that cannot be reached, or does not answer.
func TestCheckServerFails(t *testing.T) {
	node := frozen(t, time.Now)
	overGRPC, overHTTP := serveNode(t, node)
	brokenGRPC, brokenHTTP := serveNode(t, broken{node})
	muteGRPC, muteHTTP := serveNode(t, mute{node})
	oldGRPC, oldHTTP := serveOld(t)
	closed := listen(t)
	gone := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "<p>Hello")
	}))
	defer page.Close()
	admin := httptest.NewServer(transport.NewAdmin(transport.AdminOptions{}).Handler())
	defer admin.Close()
	long := strings.Repeat("x", 9000)
	rules := file(t, "rules.yaml", checkRules)
	for name, c := range map[string]struct {
		args   string
		status int
		want   string // with " … " between parts that must all be there
	}{
		"nobody over gRPC": {"--server " + gone, 2, "weir: node " + gone +
			" cannot be asked: … connection refused; is it running there? (node serve)"},
		"nobody over HTTP": {"--server http://" + gone, 2, "weir: node http://" + gone +
			" cannot be asked: … connection refused; is it running there?"},
		"no such host": {"--server nowhere.invalid:80", 2, "cannot be asked: lookup nowhere.invalid"},
		"HTTP, not gRPC": {"--server " + strings.TrimPrefix(overHTTP, "http://"), 2,
			"does not speak its gRPC; if it speaks HTTP, give --server " + overHTTP},
		"gRPC, not HTTP": {"--server http://" + overGRPC, 2,
			"does not speak HTTP; if it speaks gRPC, give its address without http://"},
		"a web page":         {"--server " + page.URL, 2, "what answers there, with 200 OK, is not a node"},
		"stopping over gRPC": {"--server " + brokenGRPC, 2, "node " + brokenGRPC + " cannot be asked: the node is stopping"},
		"stopping over HTTP": {"--server " + brokenHTTP, 2, "node " + brokenHTTP + " cannot be asked: the node is stopping"},
		"invalid over gRPC":  {"--user " + long + " --server " + overGRPC, 1, "weir: node " + overGRPC + ": invalid: … 8192"},
		"invalid over HTTP":  {"--user " + long + " --server " + overHTTP, 1, "weir: node " + overHTTP + ": invalid: … 8192"},
		"rules and server":   {"--rules " + rules + " --server " + overGRPC, 2, "--rules and --server are both given"},
		"mute over gRPC": {"--explain --server " + muteGRPC, 2,
			"node " + muteGRPC + " cannot be asked: no member that holds the keys answered: ada"},
		"mute over HTTP": {"--explain --server " + muteHTTP, 2,
			"node " + muteHTTP + " cannot be asked: no member that holds the keys answered: ada"},
		"old over gRPC": {"--explain --server " + oldGRPC, 1,
			"node " + oldGRPC + " does not explain its decisions: it runs an older version; leave out --explain"},
		"old over HTTP": {"--explain --server " + oldHTTP, 1,
			"node " + oldHTTP + " does not explain its decisions: it runs an older version; leave out --explain"},
		"a page, explained": {"--explain --server " + page.URL, 2, "what answers there, with 200 OK, is not a node"},
		"bad cost explained": {"--explain --user " + long + " --server " + overGRPC, 1,
			"weir: node " + overGRPC + ": invalid: … 8192"},
		"admin": {"--server " + admin.URL, 1, "node " + admin.URL +
			": there is nothing at … the node serves it at another address, its --http-addr"},
		"admin, explained": {"--explain --server " + admin.URL, 1,
			"node " + admin.URL + ": there is nothing at … the node serves it at another address, its --http-addr"},
		"HTTP, not HTTPS": {"--server https://" + strings.TrimPrefix(overHTTP, "http://"), 2,
			"does not speak TLS; give --server " + overHTTP},
		"a socket": {"--server unix:/run/weir.sock", 2,
			"is no address: give HOST:PORT for gRPC or http://HOST:PORT"},
		"at": {"--at " + noon + " --server " + overGRPC, 2, "--at is for --rules"},
		"a database and no Redis": {"--rules " + rules + " --redis-db 3", 2,
			"--redis-db is for --redis-addr: give it too, or leave this out"},
		"a secret and no Redis": {"--server " + overGRPC + " --secret-file x", 2, "--secret-file is for --redis-addr"},
		"a token and no node":   {"--rules " + rules + " --token-file x", 2, "--token-file is for --server"},
		"neither":               {"", 2, "give --rules FILE, or a running node with --server HOST:PORT"},
		"no port": {"--server localhost", 2,
			`--server "localhost" is no address: give HOST:PORT for gRPC or http://HOST:PORT; see`},
		"no host":        {"--server :80", 2, "is no address"},
		"other scheme":   {"--server ftp://localhost:80", 2, "is no address"},
		"no host in URL": {"--server http://", 2, "is no address"},
		"bad URL":        {"--server http://[::1", 2, "is no address"},
	} {
		t.Run(name, func(t *testing.T) {
			got := person{}.run(t, append([]string{"check", "/towns"}, strings.Fields(c.args)...)...)
			if got.status != c.status || got.out != "" {
				t.Errorf("status %d, want %d; on standard output: %q", got.status, c.status, got.out)
			}
			for _, want := range strings.Split(c.want, " … ") {
				if !strings.Contains(got.err, want) {
					t.Errorf("%q is not in:\n%s", want, got.err)
				}
			}
			if strings.Count(got.err, "\n") != 1 || strings.Contains(got.err, "rpc error") {
				t.Errorf("not one line for people: %s", got.err)
			}
		})
	}
}

func TestCheckServerDoesNotWaitForever(t *testing.T) {
	overGRPC, overHTTP := serveNode(t, never{frozen(t, time.Now)})
	for _, server := range []string{overGRPC, overHTTP} {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			got := person{}.run(t, "check", "/towns", "--server", server)
			if got.status != 2 || !strings.Contains(got.err, "cannot be asked: there was no answer within 5s") {
				t.Errorf("%+v", got)
			}
		})
	}
}
