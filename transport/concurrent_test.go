package transport_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// TestManyAskers: many concurrent clients of every protocol are together admitted
// exactly the limit, and each gets its own answers.
func TestManyAskers(t *testing.T) {
	s := newServer(t, `
version: 1
rules:
  - {name: all, key: [user], limits: [1000/hour], algorithm: fixed_window}
`, nil)
	const askers, each = 4, 100 // of each protocol, 10 checks in a batch
	var admitted [2]atomic.Int64
	users := [2]string{"ada", "bob"}
	count := func(who int, allowed bool, key string) {
		if allowed {
			admitted[who].Add(1)
		}
		if key != users[who]+":hour" {
			t.Errorf("%s is told of the counter %q", users[who], key)
		}
	}
	ctx := context.Background()
	var wg sync.WaitGroup
	for i := range askers {
		who := i % 2
		one := &weirv1.CheckRequest{User: users[who]}
		wg.Go(func() {
			for range each {
				m, err := s.api.Check(ctx, one)
				if err != nil {
					t.Error(err)
					return
				}
				count(who, m.Allowed, m.Limits[0].Key)
			}
		})
		wg.Go(func() {
			for range each {
				m, err := s.api.CheckBatch(ctx, &weirv1.CheckBatchRequest{Checks: []*weirv1.CheckRequest{one, one, one, one, one,
					one, one, one, one, one}})
				if err != nil {
					t.Error(err)
					return
				}
				for _, r := range m.Results {
					count(who, r.GetDecision().Allowed, r.GetDecision().Limits[0].Key)
				}
			}
		})
		wg.Go(func() {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			stream, err := s.api.CheckStream(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			in := &weirv1.CheckColumns{EveryLimit: true}
			for range 10 {
				in.Keys, in.UserLengths = append(in.Keys, users[who]...), append(in.UserLengths, 3)
			}
			for range each {
				if err := stream.Send(in); err != nil {
					t.Error(err)
					return
				}
				m, err := stream.Recv()
				if err != nil {
					t.Error(err)
					return
				}
				for _, c := range expand(m) {
					count(who, c.Allowed, c.Limits[0].Key)
				}
			}
		})
	}
	wg.Wait()
	for who, user := range users {
		if n := admitted[who].Load(); n != 1000 {
			t.Errorf("%s was admitted %d times by a limit of 1000", user, n)
		}
	}
}
