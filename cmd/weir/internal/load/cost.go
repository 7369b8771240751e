package load

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/dialing"
	"github.com/weirlimit/weir/internal/procstat"
)

const (
	scrapeWithin  = 5 * time.Second
	maxScrapeSize = 16 << 20
	mostMetric    = 1e18 // for any counted value, bytes included
	mostSeconds   = 9e9  // of processor time: 285 years, about the longest time.Duration
)

// usage is what the process of a server has used so far. Only metrics provide more than
// the processor time.
type usage struct {
	name     string
	cpu      time.Duration
	measured bool // the fields below come from metrics
	mallocs  float64
	bytes    float64
	cycles   float64
	paused   float64 // seconds
	began    float64 // start time of the process in seconds; 0 if not known
}

// usage returns the usage of all servers for which it is available.
func (c *Config) usage(ctx context.Context) ([]usage, error) {
	var all []usage
	for _, pid := range c.Processes {
		cpu, err := procstat.Of(pid)
		if err != nil {
			return nil, err
		}
		all = append(all, usage{name: "process " + strconv.Itoa(pid), cpu: cpu})
	}
	for _, at := range c.Metrics {
		u, err := c.scrape(ctx, at)
		if err != nil {
			return nil, fmt.Errorf("the metrics of %s cannot be read: %w", at, err)
		}
		all = append(all, u)
	}
	return all, nil
}

// scrape reads /metrics of a server.
func (c *Config) scrape(ctx context.Context, at string) (u usage, err error) {
	err = c.get(ctx, at+"/metrics", func(r io.Reader) (err error) {
		u, err = parseMetrics(at, r)
		return err
	})
	return u, err
}

// get requests what is at an address and passes the body to read.
func (c *Config) get(ctx context.Context, at string, read func(io.Reader) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, scrapeWithin)
	defer cancel()
	shown, scheme := c.Credentials, "http://"
	shown = cmp.Or(shown, new(dialing.Credentials))
	if shown.Secure() {
		scheme = "https://"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+at, http.NoBody)
	if err != nil {
		return err
	}
	req.Close = true
	resp, err := (&http.Client{Transport: shown.HTTP()}).Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s", resp.Status)
	}
	return read(io.LimitReader(resp.Body, maxScrapeSize))
}

// names returns the servers' names as members of a cluster, in the order of the
// servers; nil unless all of them provide theirs.
func (c *Config) names(ctx context.Context) []string {
	if len(c.Metrics) != len(c.Servers) || len(c.Servers) < 2 {
		return nil
	}
	var all []string
	for _, at := range c.Metrics {
		var answer struct {
			Members []struct {
				Name string    `json:"name"`
				Self *struct{} `json:"self"`
			} `json:"members"`
		}
		if err := c.get(ctx, at+"/v1/members", func(r io.Reader) error {
			return json.NewDecoder(r).Decode(&answer)
		}); err != nil {
			return nil // the servers are in no cluster
		}
		for _, m := range answer.Members {
			if m.Self != nil {
				all = append(all, m.Name)
			}
		}
	}
	if len(all) != len(c.Servers) {
		return nil
	}
	return all
}

// parseMetrics parses the text format of Prometheus.
func parseMetrics(at string, r io.Reader) (usage, error) {
	u := usage{name: at}
	var seconds float64
	wanted := map[string]*float64{
		"process_cpu_seconds_total": &seconds, "go_memstats_mallocs_total": &u.mallocs,
		"go_memstats_alloc_bytes_total": &u.bytes, "go_gc_duration_seconds_count": &u.cycles,
		"go_gc_duration_seconds_sum": &u.paused,
		"process_start_time_seconds": &u.began,
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), " ")
		to := wanted[name]
		if to == nil {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return u, fmt.Errorf("%s is %q, which is not a number", name, value)
		}
		// Results are written as JSON, which has neither NaN nor infinity.
		if !(n >= 0 && n <= mostMetric) || to == &seconds && n > mostSeconds {
			return u, fmt.Errorf("%s is %q, which is out of range", name, value)
		}
		*to = n
		delete(wanted, name)
	}
	if err := lines.Err(); err != nil {
		return u, err
	}
	if wanted["process_cpu_seconds_total"] != nil {
		return u, errors.New("there is no process_cpu_seconds_total; is it a node's HTTP address?")
	}
	delete(wanted, "process_start_time_seconds") // optional: without it a restart is detected only by a lower count
	u.cpu, u.measured = time.Duration(seconds*float64(time.Second)), len(wanted) == 0
	return u, nil
}

// Cost is what a server's process used, divided by the checks of all servers.
type Cost struct {
	// Server is its HTTP address, or "process" and its id.
	Server string   `json:"server"`
	CPU    *float64 `json:"cpu_us_per_check"` // nil if not known
	// Unknown is why CPU is not known.
	Unknown string `json:"unknown,omitempty"`
	// The fields below are nil without metrics.
	Allocations *float64 `json:"allocations_per_check,omitempty"`
	Bytes       *float64 `json:"bytes_per_check,omitempty"`
	Collections *float64 `json:"collections,omitempty"`
	PausedMs    *float64 `json:"paused_ms,omitempty"`
}

// restarted reports whether a server has restarted since then. Its usage, and the total
// of all servers, are then not known.
func (u *usage) restarted(since *usage) bool {
	return u.began != since.began || u.cpu < since.cpu || u.mallocs < since.mallocs || u.bytes < since.bytes ||
		u.cycles < since.cycles || u.paused < since.paused
}

// cost computes the costs from the servers' usages before and after.
func (p *Point) cost(before, after []usage) {
	sum, known := 0.0, len(before) > 0
	for i := range before {
		b, a := &before[i], &after[i]
		if a.restarted(b) {
			p.Servers = append(p.Servers, Cost{Server: b.name, Unknown: "it was restarted during the run"})
			known = false
			continue
		}
		one := Cost{Server: b.name, CPU: perCheck(a.cpu-b.cpu, p.Checks)}
		if a.measured && b.measured {
			n := float64(max(p.Checks, 1))
			one.Allocations, one.Bytes = new((a.mallocs-b.mallocs)/n), new((a.bytes-b.bytes)/n)
			one.Collections, one.PausedMs = new(a.cycles-b.cycles), new((a.paused-b.paused)*1000)
		}
		p.Servers = append(p.Servers, one)
		sum += *one.CPU
	}
	if known {
		p.ServerCPU = &sum
	}
}

func perCheck(d time.Duration, checks uint64) *float64 {
	return new(float64(d) / float64(time.Microsecond) / float64(max(checks, 1)))
}
