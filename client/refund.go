package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// CheckWithReceipt is Check whose decision has a receipt for [Client.Refund]. There is no
// receipt if nothing was charged, or if a policy decided because no holder of the counters
// answered. The check is a call of its own, which takes more time of client and node than
// Check. The nodes must allow refunds (their flag --allow-refunds); else the error wraps
// [ErrDenied].
//
// If a node does not answer, another one is asked, as for Check. The receipt belongs to the
// check that was answered.
func (c *Client) CheckWithReceipt(ctx context.Context, r limiter.Request) (limiter.Decision, error) {
	if err := sendable(&r); err != nil {
		return limiter.Decision{}, err
	}
	q := c.newCheck(&r, false)
	q.Receipt = true
	var d limiter.Decision
	if err := c.askUnary(ctx, &r, q, &d); err != nil {
		return limiter.Decision{}, err
	}
	return d, nil
}

// Refund takes back the charge of a check, by the receipt of its decision, as Refund of a
// node does. The request must be that of the check, with the same cost. Using a receipt
// again does nothing, at any node, so a refund whose error wraps [ErrUnanswered] can be
// repeated; Refund itself asks another node once if one does not answer. A receipt is void
// ten minutes after the check, and if the counter was reset or has another owner since:
// then nothing is taken back, and there is no error.
//
// The error wraps [ErrInvalid] for a receipt that is not one of this request: nodes open
// the receipts of others only if they have the same secret. It wraps [ErrDenied] if the
// nodes do not allow refunds.
func (c *Client) Refund(ctx context.Context, r limiter.Request, receipt limiter.Receipt) error {
	if err := sendable(&r); err != nil {
		return err
	}
	if receipt.Sealed() == "" {
		return fmt.Errorf("%w: the receipt is empty: take that of a decision of CheckWithReceipt, which has one if "+
			"something was charged", ErrInvalid)
	}
	q := weirwire.NewCheckRequest(&r, false)
	return c.alone(ctx, func(ctx context.Context, api weirv1.LimiterClient, o ...grpc.CallOption) error {
		_, err := api.Refund(ctx, &weirv1.RefundRequest{
			Path: q.GetPath(), Method: q.GetMethod(), User: q.GetUser(), Ip: q.GetIp(), Group: q.GetGroup(),
			Attributes: q.GetAttributes(), Cost: q.Cost, Rule: q.GetRule(), Limits: q.GetLimits(), Receipt: receipt.Sealed(),
			Id: q.GetId(),
		}, o...)
		return err
	})
}
