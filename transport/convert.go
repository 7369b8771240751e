package transport

import (
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
)

// fillRequest turns a message into a request, except its cost. The request shares the
// message's strings and map.
func (s *service) fillRequest(r *limiter.Request, m weirwire.Asked) error {
	weirwire.Fill(r, m)
	limits := m.GetLimits()
	if err := s.permit(weirwire.Parts{Attributes: len(r.Attributes), Limits: len(limits)}); err != nil {
		return err
	}
	return weirwire.FillLimits(r, limits)
}

// fillFull turns a message that the protobuf library has decoded into a request.
func (s *service) fillFull(r *limiter.Request, m *weirwire.Full) error {
	if m.Message == nil {
		return s.permit(m.Parts)
	}
	err := s.mayRefund(m.Message.GetReceipt() || m.Message.GetHoldUs() != 0)
	if err == nil {
		err = s.fillRequest(r, m.Message)
	}
	weirwire.FillCheck(r, m.Message)
	return err
}

// permit returns an error for a request with too many parts, or with limits that are
// not allowed.
func (s *service) permit(p weirwire.Parts) error {
	switch {
	case max(p.Attributes, p.Actual) > MaxAttributes:
		return weirwire.TooMany("attributes", max(p.Attributes, p.Actual), MaxAttributes)
	case p.Limits > 0 && s.front.Allows(ActionLimits) != nil:
		return s.front.Allows(ActionLimits)
	case p.Limits > limiter.MaxLimits:
		return weirwire.TooMany("limits", p.Limits, limiter.MaxLimits)
	case p.KeyParts > limiter.MaxLimits*limiter.MaxKeyParts:
		return weirwire.TooMany("parts of keys of limits", p.KeyParts, limiter.MaxLimits*limiter.MaxKeyParts)
	}
	return nil
}
