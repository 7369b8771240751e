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
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
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

func measure(addr string, pids []string, l load) error {
	before, err := spent(pids)
	if err != nil {
		return err
	}
	begin := time.Now()
	answers := make([][]answer, l.clients)
	var all sync.WaitGroup
	for i := range l.clients {
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		all.Go(func() { answers[i] = one(rls.NewRateLimitServiceClient(c), begin, i, l) })
	}
	all.Wait()
	after, err := spent(pids)
	if err != nil {
		return err
	}
	printAnswers(slices.Concat(answers...), l.rate, time.Since(begin), after-before)
	return nil
}

// one asks over connection i. With a rate, calls begin at instants that were set before,
// whether those before are answered or not, as Envoy's do; without, one after the other.
func one(c rls.RateLimitServiceClient, begin time.Time, i int, l load) (out []answer) {
	var mu sync.Mutex
	var all sync.WaitGroup
	call := func(at time.Duration) {
		ctx, cancel := context.WithTimeout(context.Background(), l.timeout)
		defer cancel()
		_, err := c.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimit.RateLimitDescriptor{{
			Entries: []*ratelimit.RateLimitDescriptor_Entry{{Key: "remote_address", Value: strconv.Itoa(rand.IntN(l.keys))}}}}})
		took := time.Since(begin) - at
		mu.Lock()
		defer mu.Unlock()
		out = append(out, answer{at, took, err != nil && status.Code(err) != codes.DeadlineExceeded})
	}
	for k := 0; ; k++ {
		at := time.Since(begin)
		if l.rate > 0 {
			at = time.Duration(float64(k*l.clients+i) / float64(l.rate) * float64(time.Second))
			time.Sleep(at - time.Since(begin))
		}
		switch {
		case at >= l.long:
			all.Wait()
			return out
		case l.rate > 0:
			all.Go(func() { call(at) })
		default:
			call(at)
		}
	}
}

// printAnswers prints what was measured, and with a rate each second that had an answer after 20 ms,
// which is Envoy's own timeout.
func printAnswers(all []answer, rate int, long, cpu time.Duration) {
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
	fmt.Printf("%.0f calls/s", float64(len(all))/long.Seconds())
	if cpu > 0 {
		fmt.Printf(", %.1f µs of the servers for a call", float64(cpu.Nanoseconds())/1000/float64(len(all)))
	}
	fmt.Printf("; p50 %v, p99 %v, p99.9 %v, most %v; %d of %d later than 20 ms, %d failed\n", at(0.5), at(0.99), at(0.999),
		at(1), late, len(all), failed)
	for second := range int(long/time.Second) + 1 {
		if s := seconds[second]; rate > 0 && s[1]+s[2] > 0 {
			fmt.Printf("  second %d: %d of %d later than 20 ms (%.2f %%), %d failed\n", second, s[1], s[0],
				100*float64(s[1])/float64(s[0]), s[2])
		}
	}
}

// spent returns the processor time of processes; one that has ended counts nothing.
func spent(pids []string) (sum time.Duration, _ error) {
	for _, pid := range pids {
		files, err := filepath.Glob("/proc/" + pid + "/task/*/schedstat")
		if err != nil {
			return 0, err
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				continue // the thread has ended
			}
			n, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(n)
		}
	}
	return sum, nil
}
