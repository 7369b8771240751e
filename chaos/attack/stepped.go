//go:build linux

package attack

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// SteppedPath is matched by two rules, of which one differs between nodes while rules
// are rolled out.
const SteppedPath = "/stepped"

// stepped asks all nodes about a path that two rules count, while somebody else rolls
// out another version of one of them, node by node.
func stepped(ctx context.Context, c *Cluster, t *tally) error {
	conns, closeAll, err := dial(c)
	if err != nil {
		return err
	}
	defer closeAll()
	every(ctx, 20*time.Millisecond, func(n int) {
		var m raw
		m = protowire.AppendTag(m, 1, protowire.BytesType)
		m = protowire.AppendString(m, SteppedPath)
		m = protowire.AppendTag(m, 3, protowire.BytesType)
		m = protowire.AppendString(m, fmt.Sprintf("step-%d", n%100))
		t.add(call(ctx, conns[n%len(conns)], weirv1.Limiter_Check_FullMethodName, m))
	})
	return nil
}
