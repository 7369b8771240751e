//go:build linux

package attack

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
	"github.com/weirlimit/weir/limiter/table"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
	"github.com/weirlimit/weir/rules"
)

// CrowdedRule is the rule whose counters are made to collide. The rules of the cluster
// must have it: key [user], a window of an hour or so.
const CrowdedRule = "crowded"

const (
	// searched is how many users are tried, crowded how many of them are used.
	searched = 3_000_000
	crowded  = 100
)

// crowd asks for users whose counters all lie at the end of one partition, if its order
// is that of the hashes which the rules and the cluster's name give.
func crowd(ctx context.Context, c *Cluster, t *tally) error {
	users, err := crowdedUsers(ctx, c)
	if err != nil || len(users) == 0 {
		return err
	}
	conns, closeAll, err := dial(c)
	if err != nil {
		return err
	}
	defer closeAll()
	every(ctx, 20*time.Millisecond, func(n int) {
		var m raw
		m = protowire.AppendTag(m, 3, protowire.BytesType)
		m = protowire.AppendString(m, users[n%len(users)])
		m = protowire.AppendTag(m, 8, protowire.BytesType)
		m = protowire.AppendString(m, CrowdedRule)
		t.add(call(ctx, conns[n%len(conns)], weirv1.Limiter_Check_FullMethodName, m))
	})
	return nil
}

// crowdedUsers searches users of one partition, and returns those with the highest
// hashes.
func crowdedUsers(ctx context.Context, c *Cluster) ([]string, error) {
	set, err := rules.Parse("rules.yaml", []byte(c.Rules), rules.Options{ClusterName: c.ClusterName})
	if err != nil {
		return nil, err
	}
	type found struct {
		user string
		hi   uint64
	}
	var all []found
	var charge arith.Charge
	for i := range searched {
		if i%1000 == 0 {
			select {
			case <-ctx.Done():
				return nil, nil // the attacks are over before this one began
			default:
			}
		}
		r := limiter.Request{User: fmt.Sprintf("crowd-%d", i), Rule: CrowdedRule}
		if _, err := set.Resolve(&r, &charge); err != nil {
			return nil, err
		}
		k := charge.Key(0)
		if table.PartitionOf(k) == 0 {
			all = append(all, found{r.User, k.Hash.Hi})
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(b.hi, a.hi) })
	var users []string
	for _, f := range all[:min(len(all), crowded)] {
		users = append(users, f.user)
	}
	return users, nil
}
