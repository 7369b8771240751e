package serve_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
	"github.com/weirlimit/weir/serve"
)

// Over all members weir_table_keys adds up to the counters that there are: the copies, as many
// again, are counted apart.
func TestTableWithoutCopies(t *testing.T) {
	const users = 90
	var members []*serve.Service
	var join []string
	for i := range 2 {
		s, err := serve.Open(t.Context(), serve.Config{Node: weir.Config{
			Rules: []byte(rules), MaxKeys: 100,
			Cluster: &cluster.Config{Name: fmt.Sprintf("node-%d", i+1), PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
				Join: join, Deadline: 30 * time.Second},
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() }) // the test is over
		if err := s.Node().WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		members, join = append(members, s), []string{s.Node().Cluster().Members()[0].Address}
	}
	read := func(s *serve.Service, name string) int {
		_, text := get(t, s.Admin(), "/metrics")
		m := regexp.MustCompile(`(?m)^` + name + ` (\d+)$`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s:\n%s", name, text)
		}
		n, _ := strconv.Atoi(m[1]) // digits
		return n
	}
	wait(t, func() bool {
		return read(members[0], "weir_partitions_unsettled") == 0 && read(members[1], "weir_partitions_unsettled") == 0
	})
	for i := range users {
		if status, body := get(t, members[i%2].Handler(), fmt.Sprintf("/v1/check?user=%d", i)); status != 200 {
			t.Fatalf("user %d: %d %s", i, status, body)
		}
	}
	wait(t, func() bool {
		return read(members[0], "weir_table_copied_keys") == read(members[1], "weir_table_keys") &&
			read(members[1], "weir_table_copied_keys") == read(members[0], "weir_table_keys")
	})
	a, b := read(members[0], "weir_table_keys"), read(members[1], "weir_table_keys")
	if a+b != users || read(members[0], "weir_table_copied_bytes") == 0 {
		t.Errorf("%d and %d counters, of %d users", a, b, users)
	}
}

func wait(t *testing.T, so func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !so(); {
		select {
		case <-tick.C:
		case <-end:
			t.Fatal("it never came about")
		}
	}
}

// The series of rules and quotas that a new file lacks end with it.
func TestSeriesEndWithTheirRules(t *testing.T) {
	s, err := serve.Open(t.Context(), serve.Config{Node: weir.Config{Rules: []byte(rules)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	series := func() []string {
		if status, body := get(t, s.Handler(), "/v1/check?user=ada"); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		_, text := get(t, s.Admin(), "/metrics")
		return regexp.MustCompile(`weir_checks_total\{result="allowed".*`).FindAllString(text, -1)
	}
	series()
	if err := s.Node().SetRules(
		[]byte("version: 1\nrules:\n  - {name: week, key: [user], limits: [2/day]}\n")); err != nil {
		t.Fatal(err)
	}
	if all := series(); len(all) != 1 || all[0] != `weir_checks_total{result="allowed",rule="week",source="owner"} 1` {
		t.Errorf("%q", all)
	}
}
