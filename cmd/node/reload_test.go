package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/rules"
)

const (
	reloads    = 1000
	badEvery   = 10 // each so many files is bad
	countLimit = 4_000_000_000
)

// version returns the n-th rules file: what is counted stays, all else changes.
func version(n int) string {
	limit := strconv.Itoa(n + 1)
	if n%badEvery == badEvery-1 {
		limit = "0"
	}
	return fmt.Sprintf(`version: 1
rules:
  - {name: changes, match: {path: "^/changes/%d$"}, limits: [{limit: %s, window: 1m}]}
  - {name: counted, match: {path: "^/counted$"}, limits: [{limit: %d, window: 30d, algorithm: fixed_window, align: first_hit}]}
`, n, limit, countLimit)
}

func hashOf(t *testing.T, file string) string {
	t.Helper()
	set, err := rules.Parse("", []byte(file), rules.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%016x", set.Hash())
}

// load asks a node from several clients, over HTTP and gRPC, and counts.
type load struct {
	allowed, failed atomic.Int64
	stop            chan struct{}
	clients         sync.WaitGroup
}

func (l *load) run(ask func() (allowed bool, err error)) {
	l.clients.Go(func() {
		for {
			select {
			case <-l.stop:
				return
			default:
			}
			switch allowed, err := ask(); {
			case err != nil || !allowed:
				l.failed.Add(1)
			default:
				l.allowed.Add(1)
			}
		}
	})
}

func startLoad(t *testing.T, overHTTP, overGRPC string) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	conn, err := grpc.NewClient(overGRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for range 2 {
		l.run(func() (bool, error) {
			a, err := weirv1.NewLimiterClient(conn).Check(t.Context(), &weirv1.CheckRequest{Path: "/counted", User: "all"})
			return a.GetAllowed(), err
		})
		c := &http.Client{Transport: &http.Transport{}}
		t.Cleanup(c.CloseIdleConnections)
		l.run(func() (bool, error) {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				"http://"+overHTTP+"/v1/check?path=/counted&user=all", nil)
			if err != nil {
				return false, err
			}
			resp, err := c.Do(req)
			if err != nil {
				return false, err
			}
			var a struct{ Allowed bool }
			return json.NewDecoder(resp.Body).Decode(&a) == nil && a.Allowed, resp.Body.Close()
		})
	}
	return l
}

func (l *load) end() {
	close(l.stop)
	l.clients.Wait()
}

var (
	hashLine    = regexp.MustCompile(`(?m)^weir_rules_info{hash="([0-9a-f]+)"} 1$`)
	failureLine = regexp.MustCompile(`(?m)^weir_rules_reloads_total{result="failure"} ([0-9]+)$`)
	countedLine = regexp.MustCompile(`(?m)^weir_checks_total{result="allowed",rule="counted",source="owner"} ([0-9.e+]+)$`)
)

func find(t *testing.T, metrics string, line *regexp.Regexp) string {
	t.Helper()
	m := line.FindStringSubmatch(metrics)
	if m == nil {
		t.Fatalf("no %v in:\n%s", line, metrics)
	}
	return m[1]
}

// A thousand rules files come into force one after the other while the node is
// asked, every tenth of them bad and refused with the old one in force. No
// request fails, and no count is lost.
func TestThousandReloads(t *testing.T) {
	if testing.Short() {
		t.Skip("long; make test-long runs it")
	}
	file := write(t, version(0))
	p, overHTTP, overGRPC := serve(t, "--rules", file)
	l := startLoad(t, overHTTP, overGRPC)
	c := &http.Client{}
	state := func() (hash string, failures int) {
		_, text := get(t, c, "http://"+p.at("admin")+"/metrics")
		failures, err := strconv.Atoi(find(t, text, failureLine))
		if err != nil {
			t.Fatal(err)
		}
		return find(t, text, hashLine), failures
	}
	begun := time.Now()
	force := hashOf(t, version(0))
	for n := 1; n <= reloads; n++ {
		bad := n%badEvery == badEvery-1
		if !bad {
			force = hashOf(t, version(n))
		}
		_, before := state()
		replace(t, file, version(n))
		p.signal(syscall.SIGHUP)
		for deadline := time.Now().Add(soon); ; {
			hash, failures := state()
			if hash == force && (!bad || failures > before) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("file %d: %s is in force, not %s, after %d failures:\n%s", n, hash, force, failures, p.log)
			}
		}
	}
	took := time.Since(begun)
	l.end()
	if l.failed.Load() > 0 || l.allowed.Load() < reloads {
		t.Errorf("%d requests failed, %d were allowed", l.failed.Load(), l.allowed.Load())
	}
	_, text := get(t, c, "http://"+p.at("admin")+"/metrics")
	if got, err := strconv.ParseFloat(find(t, text, countedLine), 64); err != nil || int64(got) != l.allowed.Load() {
		t.Errorf("%v checks were counted by the metrics, %d were answered: %v", got, l.allowed.Load(), err)
	}
	_, answer := get(t, c, "http://"+overHTTP+"/v1/check?path=/counted&user=all&cost=0")
	if want := fmt.Sprintf(`"remaining":%d,`, countLimit-l.allowed.Load()); !strings.Contains(answer, want) {
		t.Errorf("%s is not in %s", want, answer)
	}
	if got := strings.Count(p.log.String(), "the old rules stay in force"); got < reloads/badEvery {
		t.Errorf("%d bad files were told of", got)
	}
	p.signal(syscall.SIGTERM)
	p.end(0)
	t.Logf("%d files in %v, with %d checks meanwhile", reloads, took.Round(time.Millisecond), l.allowed.Load())
}
