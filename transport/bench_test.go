package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

const (
	benchUsers   = 20_000 // as many counters
	benchClients = 64
	benchBatch   = 1000
)

// BenchmarkServer measures what the process of a server takes of the processors
// for one check, client excluded, next to a server of grpc-go that does nothing
// but receive and answer. An operation is a check. Half of all checks or more
// are denied when it runs long: a user has 100 a minute.
func BenchmarkServer(b *testing.B) {
	for _, how := range []struct {
		name string
		run  func(*testing.B, *child, int) (checks, answered int64)
	}{
		{"unary-64-clients", benchUnary}, {"batch-1000", benchBatches}, {"stream-1000", benchStream(1000)},
		{"stream-100", benchStream(100)},
	} {
		for _, kind := range []string{"weir", "empty"} {
			b.Run(how.name+"/"+kind, func(b *testing.B) {
				if cpuTime() == 0 {
					b.Skip("the time that a process takes is not known here")
				}
				c := startChild(b, kind)
				how.run(b, c, benchUsers) // warm
				before := c.usage()
				b.ResetTimer()
				checks, answered := how.run(b, c, b.N)
				b.StopTimer()
				after := c.usage()
				if kind == "weir" && (after.keys < benchUsers || answered < checks) {
					b.Errorf("%d counters, want %d; of %d checks %d were answered", after.keys, benchUsers, checks, answered)
				}
				b.ReportMetric(float64((after.cpu-before.cpu).Nanoseconds())/1e3/float64(checks), "server-µs/check")
			})
		}
	}
}

// user returns the name of the user of the i-th check.
func user(i int64) string { return fmt.Sprintf("user-%05d", i%benchUsers) }

func benchUnary(b *testing.B, c *child, n int) (checks, answered int64) {
	var next, got atomic.Int64
	var wg sync.WaitGroup
	for range benchClients {
		conn := dial(b, c.grpc)
		defer conn.Close()
		api := weirv1.NewLimiterClient(conn)
		wg.Go(func() {
			for {
				i := next.Add(1)
				if i > int64(n) {
					return
				}
				m, err := api.Check(context.Background(), &weirv1.CheckRequest{Path: "/towns", User: user(i)})
				if err != nil {
					b.Error(err)
					return
				}
				if len(m.Limits) == 1 {
					got.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int64(n), got.Load()
}

func benchBatches(b *testing.B, c *child, n int) (checks, answered int64) {
	conn := dial(b, c.grpc)
	defer conn.Close()
	api := weirv1.NewLimiterClient(conn)
	messages := make([]*weirv1.CheckBatchRequest, benchUsers/benchBatch)
	for i := range messages {
		m := &weirv1.CheckBatchRequest{}
		for j := range benchBatch {
			m.Checks = append(m.Checks, &weirv1.CheckRequest{Path: "/towns", User: user(int64(i*benchBatch + j))})
		}
		messages[i] = m
	}
	for i := 0; checks < int64(n); i++ {
		m, err := api.CheckBatch(context.Background(), messages[i%len(messages)])
		if err != nil {
			b.Error(err)
			break
		}
		checks += benchBatch
		for _, r := range m.Results {
			if len(r.GetDecision().GetLimits()) == 1 {
				answered++
			}
		}
	}
	return checks, answered
}

// benchStream asks in columns on one stream, with a few messages on their way.
func benchStream(batch int) func(b *testing.B, c *child, n int) (checks, answered int64) {
	return func(b *testing.B, c *child, n int) (checks, answered int64) {
		conn := dial(b, c.grpc)
		defer conn.Close()
		stream, err := weirv1.NewLimiterClient(conn).CheckStream(context.Background())
		if err != nil {
			b.Error(err)
			return 0, 0
		}
		messages := make([]*weirv1.CheckColumns, benchUsers/batch)
		for i := range messages {
			m := &weirv1.CheckColumns{}
			for j := range batch {
				u := user(int64(i*batch + j))
				m.Keys = append(append(m.Keys, "/towns"...), u...)
				m.PathLengths, m.UserLengths = append(m.PathLengths, 6), append(m.UserLengths, uint32(len(u)))
			}
			messages[i] = m
		}
		go sendAll(b, stream, messages, (n+batch-1)/batch)
		for {
			m, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return checks, answered
			}
			if err != nil {
				b.Error(err)
				return checks, answered
			}
			checks += int64(batch)
			for _, ref := range m.LimitRefs {
				answered += int64(ref)
			}
		}
	}
}

// sendAll sends the messages in turn, n in total. The flow control of the stream bounds
// how many are in flight.
func sendAll(b *testing.B, stream grpc.BidiStreamingClient[weirv1.CheckColumns, weirv1.DecisionColumns],
	messages []*weirv1.CheckColumns, n int) {
	for i := range n {
		if err := stream.Send(messages[i%len(messages)]); err != nil {
			b.Error(err)
			return
		}
	}
	if err := stream.CloseSend(); err != nil {
		b.Error(err)
	}
}
