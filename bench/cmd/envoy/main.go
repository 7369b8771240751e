// Command envoy asks Envoy's rate limit service, as many Envoys do, and says how long answers
// take and what they cost the servers. It can be such a service too, one that decides nothing.
//
//	envoy -empty HOST:PORT
//	envoy -ask HOST:PORT [-pids PID,PID] [-clients N] [-rate N] [-time TIME] [-timeout TIME]
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirlimit/weir/internal/loadgen"
	"github.com/weirlimit/weir/internal/procstat"
)

func main() {
	empty := flag.String("empty", "", "serve at `HOST:PORT` and decide nothing")
	ask := flag.String("ask", "", "ask the service at `HOST:PORT`")
	pids := flag.String("pids", "", "`PIDS` of the servers whose processor time is told")
	clients := flag.Int("clients", 64, "connections; without -rate each has one call at a time")
	rate := flag.Int("rate", 0, "calls a second; 0: as many as there can be")
	long := flag.Duration("time", 5*time.Second, "how long to ask")
	timeout := flag.Duration("timeout", 2*time.Second, "how long a call waits, and says so to the service; Envoy: 20ms")
	keys := flag.Int("keys", 100_000, "values of the descriptor")
	flag.Parse()
	var err error
	if *empty != "" {
		err = serve(*empty)
	} else {
		err = measure(*ask, strings.FieldsFunc(*pids, func(r rune) bool {
			return r == ','
		}), load{*clients, *rate, *keys, *long, *timeout})
	}
	if err != nil {
		log.Fatal(err)
	}
}

// nothing answers each call with OK.
type nothing struct {
	rls.UnimplementedRateLimitServiceServer
}

func (nothing) ShouldRateLimit(_ context.Context, in *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	out := &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK}
	for range in.GetDescriptors() {
		out.Statuses = append(out.Statuses, &rls.RateLimitResponse_DescriptorStatus{
			Code: rls.RateLimitResponse_OK, LimitRemaining: 999, DurationUntilReset: durationpb.New(time.Minute),
			CurrentLimit: &rls.RateLimitResponse_RateLimit{RequestsPerUnit: 1000, Unit: rls.RateLimitResponse_RateLimit_HOUR},
		})
	}
	return out, nil
}

func serve(addr string) error {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(s, nothing{})
	return s.Serve(l)
}

// load is how a service is asked.
type load struct {
	clients, rate, keys int
	long, timeout       time.Duration
}

// answer is when a call should have begun, how long after that its answer came, and whether
// it was an error other than its timeout, which is a late answer.
type answer struct {
	at, took time.Duration
	failed   bool
}

// inFlight is how many calls a connection has open at a rate. Envoy bounds them by nothing but its timeout; a call
// that finds none free is measured from when it was due.
const inFlight = 16

func measure(addr string, pids []string, l load) error {
	before, err := spent(pids)
	if err != nil {
		return err
	}
	depth := 1
	if l.rate > 0 {
		depth = inFlight
	}
	answers := make([][]answer, l.clients*depth)
	calls := make([]loadgen.Call, len(answers))
	for i := range l.clients {
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		for k := i; k < len(calls); k += l.clients {
			calls[k] = func(ctx context.Context, clock loadgen.Clock, due time.Duration) (time.Duration, error) {
				failed := one(ctx, rls.NewRateLimitServiceClient(c), l)
				now := clock.Now()
				answers[k] = append(answers[k], answer{due, now - due, failed})
				return now, nil
			}
		}
	}
	done, err := loadgen.Plan{Rate: float64(l.rate), Long: l.long}.Run(context.Background(), calls)
	if err != nil {
		return err
	}
	after, err := spent(pids)
	if err != nil {
		return err
	}
	printAnswers(slices.Concat(answers...), l.rate, done, after-before)
	return nil
}

// one asks once, and reports whether that failed otherwise than by its timeout.
func one(ctx context.Context, c rls.RateLimitServiceClient, l load) (failed bool) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	_, err := c.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{{
		Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "remote_address", Value: strconv.Itoa(rand.IntN(l.keys))}}}}})
	return err != nil && status.Code(err) != codes.DeadlineExceeded
}

// printAnswers prints what was measured, and with a rate each second that had an answer after 20 ms,
// which is Envoy's own timeout.
func printAnswers(all []answer, rate int, done loadgen.Result, cpu time.Duration) {
	took := make([]time.Duration, len(all))
	late, failed, seconds := 0, 0, map[int][3]int{}
	for i, a := range all {
		took[i] = a.took
		s := seconds[int(a.at/time.Second)]
		s[0]++
		if a.took > 20*time.Millisecond {
			late++
			s[1]++
		}
		if a.failed {
			failed++
			s[2]++
		}
		seconds[int(a.at/time.Second)] = s
	}
	slices.Sort(took)
	at := func(part float64) time.Duration { return took[int(part*float64(len(took)-1))].Round(time.Microsecond) }
	fmt.Printf("%.0f calls/s", float64(len(all))/done.Spent.Seconds())
	if cpu > 0 {
		fmt.Printf(", %.1f µs of the servers for a call", float64(cpu.Nanoseconds())/1000/float64(len(all)))
	}
	fmt.Printf("; p50 %v, p99 %v, p99.9 %v, most %v; %d of %d later than 20 ms, %d failed, "+
		"%d not sent\n", at(0.5), at(0.99), at(0.999), at(1), late, len(all), failed, done.Unsent.Count())
	for second := range int(done.Spent/time.Second) + 1 {
		if s := seconds[second]; rate > 0 && s[1]+s[2] > 0 {
			fmt.Printf("  second %d: %d of %d later than 20 ms (%.2f %%), %d failed\n", second, s[1], s[0],
				100*float64(s[1])/float64(s[0]), s[2])
		}
	}
}

// spent returns the processor time of processes.
func spent(pids []string) (sum time.Duration, _ error) {
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			return 0, err
		}
		one, err := procstat.Of(pid)
		if err != nil {
			return 0, err
		}
		sum += one
	}
	return sum, nil
}
