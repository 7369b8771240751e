package middle

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/front"
	"github.com/weirlimit/weir/internal/seldom"
	"github.com/weirlimit/weir/limiter"
)

// Core is a middleware without its protocol. The functions that its options get are of the types Extract, which reads
// a value of what is checked, Used, which says what it has used, and Told, which learns of settlements. It must be
// complete before it is used from many goroutines, see [Core.Complete].
type Core[Extract, Used, Told any] struct {
	// Package is the name of the middleware's package, with which its errors begin.
	Package string
	// Rule is the name of the rule that decides; empty: the one that matches.
	Rule string
	// Addresses finds the caller's address in AddressIn, the name of a field of the header or metadata.
	Addresses front.Addresses
	AddressIn string
	// UnixSocket treats connections over Unix sockets as ones from a trusted proxy.
	UnixSocket bool
	// FailOpen lets pass what cannot be decided.
	FailOpen bool
	// Settling is nil if what is checked is charged for good.
	Settling *Settling[Used, Told]

	attributes []attribute[Extract]
	pool       sync.Pool // of *Check
	lines      seldom.Lines
}

type attribute[Extract any] struct {
	name string
	from Extract
}

// SetRule names the rule that decides. found is what finds one otherwise.
func (c *Core[Extract, Used, Told]) SetRule(name, found string) error {
	if name == "" {
		return fmt.Errorf("%s: Rule needs the name of a rule; leave it out to let the %s find one", c.Package, found)
	}
	c.Rule = name
	return nil
}

// Trust adds networks of trusted proxies.
func (c *Core[Extract, Used, Told]) Trust(networks []netip.Prefix) error {
	trusted, err := front.Trust(networks)
	if err != nil {
		return fmt.Errorf("%s: TrustedProxies: %w", c.Package, err)
	}
	c.Addresses.Trusted = append(c.Addresses.Trusted, trusted...)
	return nil
}

// SetIPv6Bits sets how many bits of an address identify a caller.
func (c *Core[Extract, Used, Told]) SetIPv6Bits(bits int) error {
	if bits < 1 || bits > 128 {
		return fmt.Errorf("%s: IPv6Bits %d is out of range: give 1 to 128", c.Package, bits)
	}
	c.Addresses.IPv6Bits = bits
	return nil
}

// AddAttribute adds an attribute of requests. given reports that from is not nil.
func (c *Core[Extract, Used, Told]) AddAttribute(name string, from Extract, given bool) error {
	if name == "" || !given {
		return fmt.Errorf("%s: Attribute needs a name and a function", c.Package)
	}
	c.attributes = append(c.attributes, attribute[Extract]{name, from})
	return nil
}

// Settle makes reservations of so long of what is checked. used is called with what has ended. named reports that it
// returns numbers by attribute.
func (c *Core[Extract, Used, Told]) Settle(hold time.Duration, named bool, used Used) error {
	if hold < limiter.MinHold || hold > limiter.MaxHold {
		return fmt.Errorf("%s: Settle with a hold of %v is out of range: give %v to %v", c.Package, hold, limiter.MinHold,
			limiter.MaxHold)
	}
	s := c.settling()
	s.Hold, s.Used, s.named = hold, used, named
	return nil
}

// OnSettled sets what learns of settlements. given reports that told is not nil.
func (c *Core[Extract, Used, Told]) OnSettled(told Told, given bool) error {
	if !given {
		return c.NeedsFunction("OnSettled")
	}
	c.settling().Told = told
	return nil
}

func (c *Core[Extract, Used, Told]) settling() *Settling[Used, Told] {
	if c.Settling == nil {
		c.Settling = new(Settling[Used, Told])
	}
	return c.Settling
}

// NeedsFunction returns the error of an option that was given nil.
func (c *Core[Extract, Used, Told]) NeedsFunction(option string) error {
	return fmt.Errorf("%s: %s needs a function", c.Package, option)
}

// Complete completes the core for a decider, and returns an error that joins the problems of options and those of how
// they fit. addressIn is the default of AddressIn. ids reports that what is checked has ids of its own.
func (c *Core[Extract, Used, Told]) Complete(decider any, addressIn string, ids bool, problems []error) error {
	if decider == nil {
		problems = append([]error{errors.New(c.Package + ": the decider is nil: pass a *weir.Node or a *client.Client")},
			problems...)
	}
	if c.AddressIn == "" {
		c.AddressIn = addressIn
	} else if len(c.Addresses.Trusted) == 0 && !c.UnixSocket {
		problems = append(problems, errors.New(c.Package+": "+c.AddressIn+
			" names the caller, but no proxy is trusted to set it: name the proxies with TrustedProxies"))
	}
	if c.Settling != nil {
		settler, can := decider.(Settler)
		switch {
		case c.Settling.Hold == 0:
			problems = append(problems, errors.New(c.Package+": OnSettled needs Settle"))
		case ids:
			problems = append(problems, errors.New(c.Package+
				": Settle and ID exclude each other: each request that is reserved has an id of its own"))
		case !can && decider != nil:
			problems = append(problems, errors.New(c.Package+
				": Settle needs a decider with reservations: pass a *weir.Node or a *client.Client"))
		case can:
			c.Settling.settler, c.Settling.cancels = settler, NewCancels(settler.Settle)
		}
	}
	c.pool.New = func() any { return new(Check) }
	return errors.Join(problems...)
}

// Blame returns an error of the decider. If the middleware's configuration has caused it, since it gives ids or
// reservations to a rule that takes none, it returns another error, which is not of the request, and logs it with the
// default logger at most once a minute.
func (c *Core[Extract, Used, Told]) Blame(err error) error {
	if !errors.Is(err, limiter.ErrNoID) {
		return err
	}
	if more, due := c.lines.Due("", time.Now()); due {
		slog.Default().Warn("a rule takes no ids, and a middleware gives some to its requests", "middleware", c.Package,
			"error", err, "not_logged", more)
	}
	return fmt.Errorf("%s: Settle and ID are not for a rule with \"any\": %v", c.Package,
		err) //nolint:errorlint // it is not the request that is not valid
}

// Check is the memory for one check. It is pooled.
type Check struct {
	Request  limiter.Request
	Decision limiter.Decision
	// Limits and Text are scratch memory for what the answer says.
	Limits []*limiter.LimitDecision
	Text   []byte

	attributes map[string]string
}

// Get returns the memory for a check, which [Core.Release] takes back.
func (c *Core[Extract, Used, Told]) Get() *Check { return c.pool.Get().(*Check) }

// Release takes the memory of a check back, without references to what was checked.
func (c *Core[Extract, Used, Told]) Release(k *Check) {
	k.Request = limiter.Request{}
	k.Decision.Clear()
	clear(k.attributes)
	clear(k.Limits)
	k.Limits, k.Text = k.Limits[:0], k.Text[:0]
	c.pool.Put(k)
}

// SetAttributes sets the attributes of a request. read calls an Extract.
func (c *Core[Extract, Used, Told]) SetAttributes(k *Check, read func(Extract) string) {
	if len(c.attributes) == 0 {
		return
	}
	if k.attributes == nil {
		k.attributes = make(map[string]string, len(c.attributes))
	}
	for _, a := range c.attributes {
		if v := read(a.from); v != "" {
			k.attributes[a.name] = v
		}
	}
	k.Request.Attributes = k.attributes
}
