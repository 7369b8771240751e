package quota

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirlimit/weir/limiter"
)

// Method is the name of the call, and Service that of the service.
const (
	Service = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService"
	Method  = "StreamRateLimitQuotas"
)

// maxEntries bounds the entries of the name of a bucket.
const maxEntries = 64

// mostRequests bounds the requests of a bucket in a report: no Envoy has as many. So sums of them fit.
const mostRequests = 1 << 32

// Fields of the messages, as in rlqs.proto, ratelimit_strategy.proto and token_bucket.proto.
const (
	fieldDomain = 1
	fieldUsages = 2

	fieldBucketID = 1 // of a usage, and of an action
	fieldElapsed  = 2
	fieldAllowed  = 3
	fieldDenied   = 4

	fieldEntry = 1 // of a name
	fieldKey   = 1
	fieldValue = 2

	fieldActions  = 1
	fieldAssigned = 2
	fieldAbandon  = 3
	fieldTTL      = 2
	fieldStrategy = 3
	fieldBlanket  = 1
	fieldTokens   = 3
	fieldSize     = 1
	fieldFill     = 2
	fieldInterval = 3
	fieldNumber   = 1 // the value of a wrapper, the seconds of a duration
)

var (
	errMalformed = errors.New("the report is not a message of the protocol")
	errNoID      = errors.New("the report has a bucket without an id: each needs at least one entry")
)

// Entry is one of those that name a bucket.
type Entry struct{ Key, Value string }

// Report is what a message has. The strings have any bytes: they come from clients of Envoy, and a decoder that
// refuses them would let those clients pass all limits.
type Report struct {
	Domain string
	usages []byte // the rest of the message
}

// Read reads the domain of a message. It keeps the message.
func Read(data []byte) (r Report, err error) {
	r.usages = data
	err = each(data, func(f protowire.Number, value []byte, _ uint64) error {
		if f == fieldDomain {
			r.Domain = string(value)
		}
		return nil
	})
	return r, err
}

// Next returns up to n further usages, none at the end.
func (r *Report) Next(n int, us []Usage) ([]Usage, error) {
	for len(r.usages) > 0 && len(us) < n {
		f, kind, length := protowire.ConsumeField(r.usages)
		if length < 0 {
			return us, errMalformed
		}
		_, _, tag := protowire.ConsumeTag(r.usages)
		field := r.usages[tag:length]
		r.usages = r.usages[length:]
		if f != fieldUsages || kind != protowire.BytesType {
			continue
		}
		value, _ := protowire.ConsumeBytes(field)
		u, err := usage(value)
		if err != nil {
			return us, err
		}
		us = append(us, u)
	}
	return us, nil
}

func usage(data []byte) (u Usage, err error) {
	err = each(data, func(f protowire.Number, value []byte, n uint64) (err error) {
		switch {
		case f == fieldBucketID && value != nil:
			u.ID, err = name(value)
		case f == fieldElapsed && value != nil:
			err = each(value, func(f protowire.Number, value []byte, n uint64) error {
				if f == fieldNumber && value == nil {
					u.Elapsed = limiter.Tick(min(n, uint64(limiter.Hour/limiter.Second))) * limiter.Second
				}
				return nil
			})
		case f == fieldAllowed && value == nil:
			u.Allowed = min(n, mostRequests)
		case f == fieldDenied && value == nil:
			u.Denied = min(n, mostRequests)
		}
		return err
	})
	if err == nil && u.ID == "" {
		err = errNoID
	}
	return u, err
}

// name returns the name of a bucket in the form that is the same for the same entries in any order: as a message,
// with the entries in the order of their keys.
func name(data []byte) (string, error) {
	entries, err := entriesOf(data)
	if err != nil {
		return "", err
	}
	var out []byte
	for _, e := range entries {
		size := protowire.SizeTag(fieldKey) + protowire.SizeBytes(len(e.Key)) + protowire.SizeTag(fieldValue) +
			protowire.SizeBytes(len(e.Value))
		out = protowire.AppendTag(out, fieldEntry, protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(size))
		out = appendBytes(out, fieldKey, e.Key)
		out = appendBytes(out, fieldValue, e.Value)
	}
	return string(out), nil
}

// Entries returns the entries of the name of a bucket, in the order of their keys.
func Entries(id string) []Entry {
	entries, _ := entriesOf([]byte(id)) // it was made here
	return entries
}

func entriesOf(data []byte) (entries []Entry, err error) {
	err = each(data, func(f protowire.Number, value []byte, _ uint64) error {
		if f != fieldEntry || value == nil {
			return nil
		}
		if len(entries) == maxEntries {
			return fmt.Errorf("the report has a bucket whose id has more than %d entries", maxEntries)
		}
		e, err := ReadEntry(value, malformed)
		at, had := slices.BinarySearchFunc(entries, e, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
		if had {
			entries[at] = e // as in a map: the last one counts
		} else {
			entries = slices.Insert(entries, at, e)
		}
		return err
	})
	return entries, err
}

// AppendAction appends an action to a message.
func AppendAction(dst []byte, a *Action) []byte {
	var assigned []byte
	if a.Kind != Abandon {
		assigned = appendDuration(nil, fieldTTL, a.TTL)
		var strategy []byte
		switch a.Kind {
		case Tokens:
			bucket := protowire.AppendTag(nil, fieldSize, protowire.VarintType)
			bucket = protowire.AppendVarint(bucket, uint64(a.Size))
			bucket = appendNumber(bucket, fieldFill, uint64(a.Rate))
			bucket = appendDuration(bucket, fieldInterval, limiter.Second)
			strategy = appendBytes(strategy, fieldTokens, bucket)
		default:
			rule := uint64(0) // ALLOW_ALL
			if a.Kind != AllowAll {
				rule = 1 // DENY_ALL
			}
			strategy = protowire.AppendTag(strategy, fieldBlanket, protowire.VarintType)
			strategy = protowire.AppendVarint(strategy, rule)
		}
		assigned = appendBytes(assigned, fieldStrategy, strategy)
	}
	action := appendBytes(nil, fieldBucketID, a.ID)
	if a.Kind == Abandon {
		action = appendBytes(action, fieldAbandon, assigned)
	} else {
		action = appendBytes(action, fieldAssigned, assigned)
	}
	return appendBytes(dst, fieldActions, action)
}

func appendBytes[T string | []byte](dst []byte, f protowire.Number, value T) []byte {
	dst = protowire.AppendTag(dst, f, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(len(value)))
	return append(dst, value...)
}

// appendNumber appends a message whose first field is a number.
func appendNumber(dst []byte, f protowire.Number, n uint64) []byte {
	dst = protowire.AppendTag(dst, f, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(protowire.SizeTag(fieldNumber)+protowire.SizeVarint(n)))
	dst = protowire.AppendTag(dst, fieldNumber, protowire.VarintType)
	return protowire.AppendVarint(dst, n)
}

// appendDuration appends whole seconds.
func appendDuration(dst []byte, f protowire.Number, d limiter.Tick) []byte {
	return appendNumber(dst, f, uint64(d/limiter.Second))
}

func each(data []byte, f func(field protowire.Number, value []byte, n uint64) error) error {
	return Each(data, malformed, f)
}

func malformed(error) error { return errMalformed }

// Each calls f with every field of a message: its bytes, or nil and the number that it is. Fields of other kinds are
// left out. What malformed makes of an error is returned for what is no message.
func Each(data []byte, malformed func(error) error,
	f func(field protowire.Number, value []byte, n uint64) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return malformed(protowire.ParseError(n))
		}
		data = data[n:]
		if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
			return malformed(protowire.ParseError(n))
		}
		var err error
		switch kind {
		case protowire.BytesType:
			value, _ := protowire.ConsumeBytes(data)
			err = f(field, value[:len(value):len(value)], 0)
		case protowire.VarintType:
			v, _ := protowire.ConsumeVarint(data)
			err = f(field, nil, v)
		}
		if err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// ReadEntry reads an entry of the name of a bucket, or of a descriptor, which has the same fields. The strings may have
// any bytes.
func ReadEntry(data []byte, malformed func(error) error) (e Entry, err error) {
	err = Each(data, malformed, func(f protowire.Number, value []byte, _ uint64) error {
		switch {
		case f == fieldKey && value != nil:
			e.Key = string(value)
		case f == fieldValue && value != nil:
			e.Value = string(value)
		}
		return nil
	})
	return e, err
}
