package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// node asks a Weir node, which decides three windows for a path that begins so.
type node struct {
	conn    *grpc.ClientConn
	api     weirv1.LimiterClient
	prefix  string
	run     string
	columns bool
	ctx     context.Context
	cancel  context.CancelFunc
}

func openBatch(prefix string) func(context.Context, Config, string) (asker, error) {
	return openNode(prefix, false)
}

func openColumns(prefix string) func(context.Context, Config, string) (asker, error) {
	return openNode(prefix, true)
}

func openNode(prefix string, columns bool) func(context.Context, Config, string) (asker, error) {
	return func(ctx context.Context, c Config, run string) (asker, error) {
		if c.Server == "" {
			return nil, errors.New("there is no node: give its gRPC address")
		}
		conn, err := grpc.NewClient("passthrough:///"+c.Server, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return nil, err
		}
		n := &node{conn: conn, api: weirv1.NewLimiterClient(conn), prefix: prefix, run: run, columns: columns}
		n.ctx, n.cancel = context.WithCancel(ctx)
		return n, nil
	}
}

func (n *node) close() error {
	n.cancel()
	return n.conn.Close()
}

// path is the path of key k, of 19 bytes.
func (n *node) path(k int) string {
	return n.prefix + strings.TrimPrefix(path(k), "/api/")
}

func (n *node) worker() (func(context.Context, []int, []bool) error, error) {
	if !n.columns {
		return n.askBatch, nil
	}
	stream, err := n.api.CheckStream(n.ctx)
	if err != nil {
		return nil, err
	}
	return func(_ context.Context, keys []int, allowed []bool) error { return n.askColumns(stream, keys, allowed) }, nil
}

func (n *node) askBatch(ctx context.Context, keys []int, allowed []bool) error {
	m := &weirv1.CheckBatchRequest{Checks: make([]*weirv1.CheckRequest, len(keys))}
	for i, k := range keys {
		m.Checks[i] = &weirv1.CheckRequest{Path: n.path(k), User: user(n.run, k)}
	}
	got, err := n.api.CheckBatch(ctx, m)
	if err != nil {
		return err
	}
	if len(got.GetResults()) != len(keys) {
		return fmt.Errorf("%d answers to %d checks", len(got.GetResults()), len(keys))
	}
	for i, r := range got.GetResults() {
		if e := r.GetError(); e != nil {
			return errors.New(e.GetMessage())
		}
		d := r.GetDecision()
		if d.GetAllowed() && len(d.GetLimits()) != len(windows) {
			return fmt.Errorf("rule %q decided by %d limits: the node needs the rules of this package", d.GetRule(),
				len(d.GetLimits()))
		}
		allowed[i] = d.GetAllowed()
	}
	return nil
}

func (n *node) askColumns(stream grpc.BidiStreamingClient[weirv1.CheckColumns, weirv1.DecisionColumns], keys []int,
	allowed []bool) error {
	m := &weirv1.CheckColumns{
		Keys: make([]byte, 0, 32*len(keys)), PathLengths: make([]uint32, len(keys)), UserLengths: make([]uint32, len(keys)),
	}
	for i, k := range keys {
		path, user := n.path(k), user(n.run, k)
		m.Keys = append(append(m.Keys, path...), user...)
		m.PathLengths[i], m.UserLengths[i] = uint32(len(path)), uint32(len(user))
	}
	if err := stream.Send(m); err != nil {
		return err
	}
	got, err := stream.Recv()
	switch {
	case err != nil:
		return err
	case got.GetError() != nil:
		return errors.New(got.GetError().GetMessage())
	case len(got.GetErrors()) > 0:
		return errors.New(got.GetErrors()[0].GetMessage())
	case len(got.GetFlags()) != len(keys):
		return fmt.Errorf("%d answers to %d checks", len(got.GetFlags()), len(keys))
	}
	for i, f := range got.GetFlags() {
		allowed[i] = f&byte(weirv1.DecisionFlag_DECISION_FLAG_ALLOWED) != 0
	}
	return nil
}
