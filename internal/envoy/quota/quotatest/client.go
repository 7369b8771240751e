// Package quotatest is Envoy's client of the rate limit quota service, for tests: what its source does with requests,
// messages and time, and nothing else. Time is an argument.
package quotatest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/durationpb"
)

// Client is Envoy's client. Its zero value, with a Domain, allows what has no assignment, as the protocol's does.
type Client struct {
	Domain string
	// Deny is no_assignment_behavior with DENY_ALL.
	Deny bool

	buckets map[string]*bucket
	// Ignored are the actions that were logged and ignored.
	Ignored []string
}

// bucket is a CachedBucket. An action of nil is none.
type bucket struct {
	id              map[string]string
	allowed, denied uint64
	reported        time.Duration
	action          *rlqs.RateLimitQuotaResponse_BucketAction
	tokens          *tokens
	expires         time.Duration
}

// tokens is an AtomicTokenBucketImpl.
type tokens struct {
	most, rate float64
	left       float64
	at         time.Duration
}

func (t *tokens) fill(now time.Duration) {
	t.left, t.at = min(t.most, t.left+t.rate*(now-t.at).Seconds()), now
}

func (t *tokens) consume(now time.Duration) bool {
	t.fill(now)
	if t.left < 1 {
		return false
	}
	t.left--
	return true
}

// ID is the id of a bucket.
type ID struct {
	entries map[string]string
	hash    string
}

// NewID returns an id.
func NewID(entries map[string]string) ID { return ID{maps.Clone(entries), hash(entries)} }

// hash is MessageUtil::hash of a BucketId.
func hash(id map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(id)) {
		fmt.Fprintf(&b, "%q=%q,", k, id[k])
	}
	return b.String()
}

// Request decides a request for a bucket. The first one of a bucket makes a report, which is sent at once.
func (c *Client) Request(now time.Duration, id ID) (allowed bool, first *rlqs.RateLimitQuotaUsageReports) {
	if c.buckets == nil {
		c.buckets = make(map[string]*bucket)
	}
	b := c.buckets[id.hash]
	if b == nil {
		b = &bucket{id: id.entries, reported: now}
		c.buckets[id.hash] = b
		first = &rlqs.RateLimitQuotaUsageReports{Domain: c.Domain}
	}
	if allowed = c.allows(now, b); allowed {
		b.allowed++
	} else {
		b.denied++
	}
	if first != nil {
		first.BucketQuotaUsages = append(first.BucketQuotaUsages, b.usage(now))
	}
	return allowed, first
}

func (c *Client) allows(now time.Duration, b *bucket) bool {
	c.expire(now, b)
	if b.action == nil {
		return !c.Deny
	}
	s := b.action.GetQuotaAssignmentAction().GetRateLimitStrategy()
	if s.GetTokenBucket() != nil {
		return b.tokens.consume(now)
	}
	return s.GetBlanketRule() != typev3.RateLimitStrategy_DENY_ALL
}

// expire is the timer of an action. There is no expired_assignment_behavior.
func (c *Client) expire(now time.Duration, b *bucket) {
	if b.action != nil && now >= b.expires {
		b.action, b.tokens = nil, nil
	}
}

func (b *bucket) usage(now time.Duration) *rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage {
	u := &rlqs.RateLimitQuotaUsageReports_BucketQuotaUsage{
		BucketId:           &rlqs.BucketId{Bucket: b.id},
		NumRequestsAllowed: b.allowed, NumRequestsDenied: b.denied,
		TimeElapsed: &durationpb.Duration{Seconds: int64((now - b.reported) / time.Second)},
	}
	b.allowed, b.denied, b.reported = 0, 0, now
	return u
}

// Report is the report of all buckets, which a timer sends. If there is no stream then, what it has is lost.
func (c *Client) Report(now time.Duration) *rlqs.RateLimitQuotaUsageReports {
	out := &rlqs.RateLimitQuotaUsageReports{Domain: c.Domain}
	for _, h := range slices.Sorted(maps.Keys(c.buckets)) {
		out.BucketQuotaUsages = append(out.BucketQuotaUsages, c.buckets[h].usage(now))
	}
	return out
}

// Buckets returns how many buckets there are.
func (c *Client) Buckets() int { return len(c.buckets) }

// Receive takes a message of the server in.
func (c *Client) Receive(now time.Duration, in *rlqs.RateLimitQuotaResponse) {
	for _, a := range in.GetBucketAction() {
		h := hash(a.GetBucketId().GetBucket())
		b := c.buckets[h]
		if len(a.GetBucketId().GetBucket()) == 0 || b == nil {
			c.Ignored = append(c.Ignored, "an unknown bucket "+h)
			continue
		}
		c.expire(now, b)
		if a.GetAbandonAction() != nil {
			delete(c.buckets, h)
			continue
		}
		var next *tokens
		if assigned := a.GetQuotaAssignmentAction(); assigned != nil {
			switch s := assigned.GetRateLimitStrategy(); s.GetStrategy().(type) {
			case *typev3.RateLimitStrategy_BlanketRule_:
			case *typev3.RateLimitStrategy_TokenBucket:
				next = b.tokens
				if b.tokens == nil || !equal(s.GetTokenBucket(),
					b.action.GetQuotaAssignmentAction().GetRateLimitStrategy().GetTokenBucket()) {
					next = replace(now, s.GetTokenBucket(), b.tokens)
				}
			default:
				c.Ignored = append(c.Ignored, fmt.Sprintf("the strategy %v", s))
				continue
			}
		}
		b.action, b.tokens = a, next
		b.expires = now + time.Duration(a.GetQuotaAssignmentAction().GetAssignmentTimeToLive().GetSeconds())*time.Second
	}
}

// equal is protoTokenBucketsEq.
func equal(a, b *typev3.TokenBucket) bool {
	return b != nil && a.GetMaxTokens() == b.GetMaxTokens() &&
		a.GetTokensPerFill().GetValue() == b.GetTokensPerFill().GetValue() &&
		a.GetFillInterval().GetNanos() == b.GetFillInterval().GetNanos()
}

// replace is createTokenBucketFromAction: the new bucket is as full, in proportion, as the old one.
func replace(now time.Duration, to *typev3.TokenBucket, old *tokens) *tokens {
	seconds := to.GetFillInterval().AsDuration() / time.Second // where it is 0 the rate is infinite
	t := &tokens{most: float64(to.GetMaxTokens()), at: now}
	t.rate = max(float64(to.GetTokensPerFill().GetValue())/float64(seconds), 1.0/(365*24*60*60))
	if t.left = t.most; old != nil {
		old.fill(now)
		t.left = math.Floor(t.most * (old.left / old.most))
	}
	return t
}
