package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// A log under files of Envoy's service: each request makes the descriptors that are named, at
// the log's own time.
func TestReplayEnvoy(t *testing.T) {
	dir := filepath.Dir(file(t, "edge.yaml", `
domain: edge
descriptors:
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: all, value: "1", descriptors: [{key: verb, rate_limit: {unit: day, requests_per_unit: 100}}]}
`))
	log := file(t, "access.log", strings.Join([]string{
		`10.0.0.1 - ada [17/May/2015:10:00:01 +0000] "GET /a HTTP/1.1" 200 1`,
		`10.0.0.1 - ada [17/May/2015:10:00:02 +0000] "GET /a HTTP/1.1" 200 1`,
		`10.0.0.1 - ada [17/May/2015:10:00:59 +0000] "PUT /a HTTP/1.1" 200 1`,
		`10.0.0.1 - ada [17/May/2015:10:01:00 +0000] "GET /a HTTP/1.1" 200 1`,
		`10.0.0.1 - - [17/May/2015:10:01:00 +0000] "GET /a HTTP/1.1" 200 1`,
		"",
	}, "\n"))
	base := []string{"replay", "--envoy-config", dir, "--envoy-descriptor", "user={user}"}
	run := func(more ...string) outcome {
		return person{}.run(t, append(append(base[:len(base):len(base)], more...), log)...)
	}
	const want = `requests	5
allowed	4
denied	1
no_descriptors	1
skipped_lines	0
first	2015-05-17T10:00:01Z
last	2015-05-17T10:01:00Z
limit	edge.user	hits	4	over	1
`
	if got := run(); got.out != want || got.status != 0 {
		t.Errorf("%+v", got)
	}
	if got := run("--envoy-descriptor", "all=1,verb={method}", "--envoy-mode", "atomic"); !strings.Contains(got.out,
		"limit\tedge.all_1.verb\thits\t5\tover\t0\n") || !strings.Contains(got.out, "denied\t1\n") {
		t.Errorf("%+v", got)
	}
	if got := run("--json"); !strings.Contains(got.out, `"limit": "edge.user"`) || got.status != 0 {
		t.Errorf("%+v", got)
	}
	for flags, want := range map[string]string{
		"--envoy-domain none":          `no file has the domain "none": there are edge`,
		"--envoy-descriptor ip={addr}": "a request of a log has no {addr}: give one of {ip}, {user}, {method}, {path}",
		"--envoy-descriptor ip":        "give KEY=VALUE",
		"--envoy-mode lax":             "give compat or atomic",
		"--rules /dev/null":            "--rules or from --envoy-config: give one of them",
	} {
		if got := run(strings.Fields(flags)...); got.status == 0 || !strings.Contains(got.err, want) {
			t.Errorf("%s: %+v", flags, got)
		}
	}
}
