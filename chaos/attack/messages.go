//go:build linux

package attack

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// raw is a message that is sent as it is, or was received.
type raw []byte

// rawCodec sends raw messages under the name of the usual codec, so that the server
// reads them by it.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*raw), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*raw) = bytes.Clone(b)
	return nil
}

var _ encoding.Codec = rawCodec{}

// dial makes a connection of its own to each target.
func dial(c *Cluster) ([]*grpc.ClientConn, func(), error) {
	var conns []*grpc.ClientConn
	closeAll := func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
	for _, t := range c.Targets {
		conn, err := grpc.NewClient("passthrough:///"+t.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(rawCodec{})))
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		conns = append(conns, conn)
	}
	return conns, closeAll, nil
}

// answerWithin is how long an attacker waits for an answer.
const answerWithin = 5 * time.Second

// call sends one raw unary message.
func call(ctx context.Context, conn *grpc.ClientConn, method string, m raw) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var reply raw
	if err := conn.Invoke(ctx, method, &m, &reply); err != nil {
		return err
	}
	if method == weirv1.Limiter_CheckBatch_FullMethodName {
		return ofBatch(reply)
	}
	return nil
}

// ofBatch returns the first error in the reply to a batch.
func ofBatch(reply raw) error {
	var r weirv1.CheckBatchResponse
	if err := proto.Unmarshal(reply, &r); err != nil {
		return err
	}
	for _, one := range r.GetResults() {
		if e := one.GetError(); e != nil {
			return status.Error(codes.Code(e.GetCode()), e.GetMessage())
		}
	}
	return nil
}

// ofColumns returns the first error in the reply to a message of columns.
func ofColumns(reply raw) error {
	var r weirv1.DecisionColumns
	if err := proto.Unmarshal(reply, &r); err != nil {
		return err
	}
	if e := r.GetError(); e != nil {
		return status.Error(codes.Code(e.GetCode()), e.GetMessage())
	}
	for _, e := range r.GetErrors() {
		return status.Error(codes.Code(e.GetCode()), e.GetMessage())
	}
	return nil
}

// repeated is a message that has the same field many times, up to size bytes.
func repeated(field protowire.Number, value []byte, size int) raw {
	var one []byte
	one = protowire.AppendTag(one, field, protowire.BytesType)
	one = protowire.AppendBytes(one, value)
	m := make(raw, 0, size)
	for len(m)+len(one) <= size {
		m = append(m, one...)
	}
	return m
}

// emptyLimits sends checks with as many empty limits as fit: of 4 MiB, which is over the
// bound of a message, and of just under 1 MiB, eight at a time to one node after the
// other.
func emptyLimits(ctx context.Context, c *Cluster, t *tally) error {
	conns, closeAll, err := dial(c)
	if err != nil {
		return err
	}
	defer closeAll()
	const limits = 9 // CheckRequest.limits
	messages := []raw{repeated(limits, nil, 4<<20-64), repeated(limits, nil, 1<<20-64)}
	batch := protowire.AppendTag(nil, 1, protowire.BytesType)
	batch = protowire.AppendBytes(batch, repeated(limits, nil, 1<<20-64))
	var sending sync.WaitGroup
	for i := range 8 {
		sending.Go(func() {
			every(ctx, 5*time.Second, func(n int) {
				method, m := weirv1.Limiter_Check_FullMethodName, messages[(n+i)%2]
				if (n+i)%4 == 0 {
					method, m = weirv1.Limiter_CheckBatch_FullMethodName, raw(batch)
				}
				t.add(call(ctx, conns[n%len(conns)], method, m))
			})
		})
	}
	sending.Wait()
	return nil
}

// attributeColumns sends columns that are nothing but attributes without elements.
func attributeColumns(ctx context.Context, c *Cluster, t *tally) error {
	conns, closeAll, err := dial(c)
	if err != nil {
		return err
	}
	defer closeAll()
	const attributes = 8 // CheckColumns.attributes
	m := repeated(attributes, nil, 1<<20-64)
	var sending sync.WaitGroup
	for _, conn := range conns {
		sending.Go(func() {
			every(ctx, time.Second, func(int) { t.add(stream(ctx, conn, m)) })
		})
	}
	sending.Wait()
	return nil
}

// stream sends one message on a stream of its own and waits for what comes back.
func stream(ctx context.Context, conn *grpc.ClientConn, m raw) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	s, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true},
		weirv1.Limiter_CheckStream_FullMethodName)
	if err != nil {
		return err
	}
	if err := s.SendMsg(&m); err != nil {
		return err
	}
	var reply raw
	if err := s.RecvMsg(&reply); err != nil {
		return err
	}
	return ofColumns(reply)
}

// distinctLimits sends checks whose limits no check had before: 100 a second to each
// node, so that in eleven minutes there are more than a table has numbers for.
func distinctLimits(ctx context.Context, c *Cluster, t *tally) error {
	conns, closeAll, err := dial(c)
	if err != nil {
		return err
	}
	defer closeAll()
	var sending sync.WaitGroup
	for k, conn := range conns {
		sending.Go(func() {
			every(ctx, 10*time.Millisecond, func(n int) {
				var limit []byte // weir.v1.Limit
				limit = protowire.AppendTag(limit, 3, protowire.VarintType)
				limit = protowire.AppendVarint(limit, uint64(1_000_000+n*len(conns)+k))
				limit = protowire.AppendTag(limit, 4, protowire.VarintType)
				limit = protowire.AppendVarint(limit, uint64(time.Hour.Microseconds()))
				var m raw
				m = protowire.AppendTag(m, 1, protowire.BytesType)
				m = protowire.AppendString(m, "/own")
				m = protowire.AppendTag(m, 3, protowire.BytesType)
				m = protowire.AppendString(m, fmt.Sprintf("stranger-%d", n%1000))
				m = protowire.AppendTag(m, 9, protowire.BytesType)
				m = protowire.AppendBytes(m, limit)
				t.add(call(ctx, conn, weirv1.Limiter_Check_FullMethodName, m))
			})
		})
	}
	sending.Wait()
	return nil
}

// longPaths sends paths of half a megabyte, each different.
func longPaths(ctx context.Context, c *Cluster, t *tally) error {
	conns, closeAll, err := dial(c)
	if err != nil {
		return err
	}
	defer closeAll()
	every(ctx, 500*time.Millisecond, func(n int) {
		var m raw
		m = protowire.AppendTag(m, 1, protowire.BytesType)
		m = protowire.AppendString(m, strings.Repeat("/towns", 90_000)+fmt.Sprint(n))
		t.add(call(ctx, conns[n%len(conns)], weirv1.Limiter_Check_FullMethodName, m))
	})
	return nil
}

// largeCalls sends single calls that are nearly as large as a message may be: checks and
// explanations with names and values as long as a node takes, and others that are mostly
// a field that no node knows. 8 at a time, to one node after the other.
func largeCalls(ctx context.Context, c *Cluster, t *tally) error {
	conns, closeAll, err := dial(c)
	if err != nil {
		return err
	}
	defer closeAll()
	var check raw
	check = protowire.AppendTag(check, 1, protowire.BytesType)
	check = protowire.AppendString(check, "/"+strings.Repeat("a", 8000))
	check = protowire.AppendTag(check, 3, protowire.BytesType)
	check = protowire.AppendString(check, "large")
	padded := append(raw{}, check...)
	padded = protowire.AppendTag(padded, 1000, protowire.BytesType)
	padded = protowire.AppendBytes(padded, make([]byte, 900<<10))
	calls := []struct {
		method string
		m      raw
	}{
		{weirv1.Limiter_Check_FullMethodName, check}, {weirv1.Limiter_Check_FullMethodName, padded},
		{weirv1.Limiter_Explain_FullMethodName, padded}, {weirv1.Limiter_Reset_FullMethodName, padded},
	}
	var sending sync.WaitGroup
	for i := range 8 {
		sending.Go(func() {
			every(ctx, 4*time.Second, func(n int) {
				one := calls[(n+i)%len(calls)]
				t.add(call(ctx, conns[n%len(conns)], one.method, one.m))
			})
		})
	}
	sending.Wait()
	return nil
}
