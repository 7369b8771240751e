//go:build linux

package attack

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/encoding/protowire"
)

// watchers is how many services each node is asked to watch at a time.
const watchers = 90

// watches watches services with names as long as a node takes, each of them different.
func watches(ctx context.Context, c *Cluster, t *tally) error {
	return watching(ctx, c, 128, t)
}

// longWatches does so with names of 64 KiB.
func longWatches(ctx context.Context, c *Cluster, t *tally) error {
	return watching(ctx, c, 64<<10, t)
}

// watching keeps watchers open at each node, with names of so many bytes, and opens
// another for each that the node ends, not faster than one every 100 ms.
func watching(ctx context.Context, c *Cluster, bytes int, t *tally) error {
	conns, closeAll, err := dial(c)
	if err != nil {
		return err
	}
	defer closeAll()
	name := strings.Repeat("n", bytes)
	var attacking sync.WaitGroup
	for _, conn := range conns {
		room := make(chan struct{}, watchers)
		attacking.Go(func() {
			every(ctx, 100*time.Millisecond, func(n int) {
				select {
				case room <- struct{}{}:
				default:
					return
				}
				attacking.Go(func() {
					defer func() { <-room }()
					different := []byte(name)
					for i := 0; n > 0; i, n = i+1, n/26 {
						different[i] = 'a' + byte(n%26)
					}
					t.add(watch(ctx, conn, string(different), t))
				})
			})
		})
	}
	attacking.Wait()
	return nil
}

// watch watches a service for a minute. It returns an error if the node refuses the
// first word.
func watch(ctx context.Context, conn *grpc.ClientConn, service string, t *tally) error {
	during, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := conn.NewStream(during, &grpc.StreamDesc{ServerStreams: true}, grpc_health_v1.Health_Watch_FullMethodName)
	if err != nil {
		return err
	}
	var m raw
	m = protowire.AppendTag(m, 1, protowire.BytesType)
	m = protowire.AppendString(m, service)
	if err := s.SendMsg(&m); err != nil {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	var reply raw
	if err := s.RecvMsg(&reply); err != nil {
		return err
	}
	defer t.hold()()
	_ = s.RecvMsg(&reply) // until the minute is over, or the node ends it
	return nil
}
