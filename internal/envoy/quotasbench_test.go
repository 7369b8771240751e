//go:build unix

package envoy_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// encoded are messages that the client does not decode, so that nearly all of what is measured is of the service.
type encoded struct{}

func (encoded) Name() string                  { return "proto" }
func (encoded) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (encoded) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(data)
	return nil
}

// reporter is a stream whose reports are the same, but for a bucket at the end of each that is new: Envoy is told of it
// when the others are dealt with.
type reporter struct {
	stream grpc.ClientStream
	dealt  chan bool // closed when the stream ends
	name   string
	sent   int
}

func (r *reporter) end() string { return fmt.Sprintf("free=%s-%d.", r.name, r.sent) }

func (r *reporter) open(b *testing.B, conn *grpc.ClientConn) {
	var err error
	if r.stream, err = conn.NewStream(b.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		rlqs.RateLimitQuotaService_StreamRateLimitQuotas_FullMethodName, grpc.ForceCodec(encoded{})); err != nil {
		b.Fatal(err)
	}
	r.name, r.sent, r.dealt = rand.Text(), 0, make(chan bool, 1)
	go func(r reporter) {
		defer close(r.dealt)
		var m []byte
		for r.stream.RecvMsg(&m) == nil {
			if bytes.Contains(m, []byte(strings.TrimPrefix(r.end(), "free="))) {
				r.dealt <- true
				r.sent++
			}
		}
	}(*r)
}

func reportOf(b *testing.B, ids ...string) []byte {
	m := &rlqs.RateLimitQuotaUsageReports{Domain: "edge"}
	for _, id := range ids {
		m.BucketQuotaUsages = append(m.BucketQuotaUsages, usage(b, "allowed=3 denied=1 elapsed=1 "+id))
	}
	data, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	return data
}

// BenchmarkQuotas has 50 streams over gRPC, each of which reports all its buckets each second. All streams have the
// same buckets. The CPU is that of the process, with a client that decodes nothing. On a busy machine streams end, as
// assignments would be late: they are opened again.
func BenchmarkQuotas(b *testing.B) {
	for _, buckets := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(buckets), func(b *testing.B) {
			x := newQuotas(b, nil)
			all, ids, next, late := make([]reporter, 50), make([]string, buckets), 0, 0
			for i := range ids {
				ids[i] = fmt.Sprintf("class=a name=%07d", i)
			}
			report := reportOf(b, ids...)
			for i := range all {
				all[i].open(b, x.conn)
			}
			one := func() {
				x.node.Advance(time.Second / time.Duration(len(all)))
				r := &all[next%len(all)]
				next++
				for dealt := false; !dealt; {
					if r.stream.SendMsg(append(bytes.Clone(report), reportOf(b, r.end())...)) == nil {
						dealt = <-r.dealt
					}
					if r.sent++; !dealt {
						late++
						r.open(b, x.conn)
					}
				}
			}
			for range 5 * len(all) { // all rates are assigned
				one()
			}
			spent := func() (time.Duration, uint64) {
				var u syscall.Rusage
				if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
					b.Fatal(err)
				}
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return time.Duration(u.Utime.Nano() + u.Stime.Nano()), m.Mallocs
			}
			cpu, allocs := spent()
			late = 0
			n := 0.0
			for b.Loop() {
				one()
				n += float64(buckets)
			}
			moreCPU, moreAllocs := spent()
			b.ReportMetric(float64((moreCPU-cpu).Nanoseconds())/n, "cpu-ns/bucket")
			b.ReportMetric(float64(moreAllocs-allocs)/n, "allocs/bucket")
			b.ReportMetric(float64(late), "late")
			if s := x.quotas.Stats(); s.Streams < int64(len(all)) || s.Refused > 0 || s.Assigned < int64(buckets) {
				b.Fatalf("the statistics are %+v", s)
			}
		})
	}
}
