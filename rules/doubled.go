package rules

import (
	"errors"
	"fmt"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// While the secret of a cluster is replaced, each request is counted under the old secret and
// under the new one: all counters of both must admit it. So the counters under the new secret
// know what the old ones know once the longest window has passed, and no count is lost.

// doubled returns a set that counts under both secrets of the options, or s if there is one.
func (s *Set) doubled(definitions, quotas []definition, outer *definition, o Options) *Set {
	if len(o.Second) == 0 {
		return s
	}
	o.Secret, o.Second, o.Seeds = o.Second, nil, nil
	both := *s
	both.first, both.second = s, newSet(definitions, quotas, outer, o)
	both.alternatives = both.each(func(k int, other *Set) {
		other.first, other.second = s.alternatives[k], both.second.alternatives[k]
	})
	return &both
}

// Doubled reports whether each request is counted under two secrets. The second half of the
// keys of a charge are then those of the first half under the second secret.
func (s *Set) Doubled() bool { return s.second != nil }

// resolveBoth is Resolve under two secrets.
func (s *Set) resolveBoth(r *limiter.Request, c *arith.Charge) (Match, error) {
	m, err := s.first.Resolve(r, c)
	if err != nil || c.Len() == 0 {
		return m, err
	}
	var second arith.Charge
	if _, err = s.second.Resolve(r, &second); err == nil {
		err = addKeys(c, &second)
	}
	if err != nil {
		c.Clear()
		return Match{}, err
	}
	return m, nil
}

// addKeys adds the keys under the second secret to those under the first.
func addKeys(c, second *arith.Charge) error {
	for i := range second.Len() {
		if !c.Add(*second.Key(i)) {
			return fmt.Errorf("%w: the rules that match count by %d keys together; at most %d can be counted while the secret "+
				"is replaced, since each is counted twice",
				limiter.ErrInvalid, second.Len(), limiter.MaxKeys/2)
		}
	}
	shape(c)
	return nil
}

// CheckSecrets returns an error if the two secrets of the options cannot be used together.
func CheckSecrets(first, second []byte) error {
	switch {
	case len(second) == 0:
		return nil
	case len(first) == 0:
		return errors.New("the second secret is set, but the first one is not: give both, or only the first")
	case string(first) == string(second):
		return errors.New("the second secret equals the first: give the next secret or the previous one, or leave it out")
	}
	return nil
}
