package transport

import (
	"context"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/guard"
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// MaxLeases bounds the leases that one message asks for, and those that it returns.
const MaxLeases = 256

// returning is how many leases of a message are returned at a time.
const returning = 16

type leaseCall struct {
	message weirv1.LeaseRequest
	hold    listen.Hold
	refused error // why it is not decoded, nil if it is
}

// readWire implements wireReader.
func (c *leaseCall) readWire(text string) {
	c.hold.Bytes = len(text)
	data, checks, values := weirwire.Bytes(text), 0, 0
	err := weirwire.EachField(data, func(_ protowire.Number, kind protowire.Type, value []byte) error {
		if kind != protowire.BytesType {
			return nil
		}
		part, _ := protowire.ConsumeBytes(value)
		n, err := weirwire.CountColumns(part)
		if checks, values = checks+n.Checks, values+n.Values; err == nil && n.Checks > MaxLeases {
			err = weirwire.TooMany("message", n.Checks, MaxLeases)
		}
		return err
	})
	if c.refused = undecodable(err); err == nil {
		c.refused = c.hold.Add(weightOf(len(text), checks, values))
	}
	if c.refused == nil {
		c.refused = undecodable(weirwire.Unmarshal(data, &c.message))
	}
}

// lending is the part of a service that lends.
type lending struct{ of *service }

// serve is the gRPC method Lease.
func (s lending) serve(ctx context.Context, decode func(any) error) (any, error) {
	c := leaseCall{hold: listen.Hold{Room: &s.of.room, Context: ctx}}
	defer c.hold.Release()
	begin := s.of.begin()
	if err := decode(&c); err != nil {
		return nil, err // there is no message, and gRPC has said why
	}
	if c.refused != nil {
		return nil, s.of.end("Lease", begin, s.of.unread(&c.hold, c.refused))
	}
	out, err := s.answer(ctx, &c.message)
	if err != nil {
		return nil, s.of.end("Lease", begin, err)
	}
	reply, err := s.of.encode(out, &c.hold)
	return reply, s.of.end("Lease", begin, err)
}

func (s lending) answer(ctx context.Context, m *weirv1.LeaseRequest) (*weirv1.LeaseResponse, error) {
	if !s.of.front.Reserves() {
		return nil, frontend.ErrNoReservations
	}
	by, err := s.of.identify(ctx)
	if err == nil {
		_, err = by.May(ActionLease)
	}
	if err == nil {
		err = by.Spend(len(m.GetAsked().GetIdLengths())+len(m.GetReturned().GetIdLengths()), proto.Size(m))
	}
	if err != nil {
		return nil, err
	}
	out := new(weirv1.LeaseResponse)
	if m.GetReturned() != nil {
		var refused error
		if out.Returned, refused = s.takeBack(ctx, &by, m.GetReturned()); refused != nil {
			out.Error = weirwire.CheckError(refused)
		}
	}
	if m.GetAsked() != nil {
		out.Asked, err = s.lend(ctx, &by, m.GetAsked())
	}
	return out, err
}

// lend decides the checks of leases. It returns an error that concerns all of the message; what it was asked is not
// decided then.
func (s lending) lend(ctx context.Context, by *frontend.Session, in *weirv1.CheckColumns) (*weirv1.DecisionColumns,
	error) {
	t := new(turn)
	n, err := s.leases(by, &t.batch, in)
	if err != nil {
		t.reply.Refuse(err)
	} else if err := t.decide(ctx, by, n, nil); err != nil {
		return nil, err
	}
	if err == nil {
		s.of.audited.part(ctx, nil, t.errs)
		t.reply.Fill(t.decisions[:n], t.failed, t.errs)
		t.reply.FillEvery(s.of.decider, t.requests[:n], t.decisions[:n])
	}
	t.reply.Id, t.reply.View = in.GetId(), s.of.view()
	return &t.reply.DecisionColumns, nil
}

// leases turns the checks of leases, which are to be lent or come back, into requests, and admits them.
func (s lending) leases(by *frontend.Session, b *batch, in *weirv1.CheckColumns) (int, error) {
	n, err := weirwire.ColumnsLen(in)
	switch {
	case err != nil:
		return 0, err
	case n > MaxLeases:
		return 0, weirwire.TooMany("message", n, MaxLeases)
	case n != len(in.GetIdLengths()) || n != len(in.GetCosts()):
		return 0, invalid("a lease lacks its id, or its cost: give each of them both")
	}
	alike := weirwire.AlikeOf(in)
	alike.Lent = true
	if err := by.Admit(&alike, ActionLease); err != nil {
		return 0, err
	}
	b.fillColumns(in, n, &alike)
	return n, nil
}

// takeBack returns leases, and says of each whether it is known what was used of it.
func (s lending) takeBack(ctx context.Context, by *frontend.Session, in *weirv1.CheckColumns) ([]byte, error) {
	var b batch
	hold := in.GetHoldUs()
	in.HoldUs = 0 // a settlement has none
	n, err := s.leases(by, &b, in)
	in.HoldUs = hold
	if err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	known, slots := make([]byte, n), make(chan struct{}, returning)
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer s.of.guard.Recover(guard.GRPC, nil)
			defer func() { <-slots }()
			used, err := b.requests[i].Cost.Value(0)
			if err != nil {
				return
			}
			out, err := by.Settle(ctx, b.requests[i], int64(used), limiter.IgnoreUnknown())
			if err == nil && (out.State == limiter.AmendDone || out.State == limiter.AmendRepeated) {
				known[i] = 1
			}
		})
	}
	all.Wait()
	return known, nil
}
