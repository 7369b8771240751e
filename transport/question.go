package transport

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
)

// question is a check in the form of HTTP.
type question struct {
	request limiter.Request
	peek    bool
	receipt bool   // the answer is to have one
	sealed  string // the receipt of a refund
	amend   amendment
	key     *string // in place of path and user, with limits; nil: not given
	tenant  string  // whose counters an administrator asks about, see [frontend.Session.About]
}

// keyed puts the key in place of the path, as Allow of a node does.
func (q *question) keyed() error {
	switch {
	case q.key == nil:
	case len(q.request.Limits) == 0:
		return invalid("key %s has no limits: send limits with it, or ask by path and user", frontend.Quote(*q.key))
	case q.request.Path != "" || q.request.User != "":
		return invalid("key %s comes with a path or a user: give either a key, or path and user", frontend.Quote(*q.key))
	default:
		q.request.Path = *q.key
	}
	return nil
}

// field is a field of a JSON object and its reader.
type field struct {
	name string
	read func(q *question, raw json.RawMessage) error
}

func idFields() []field {
	return []field{idField(), {"id_ttl_ms", func(q *question, raw json.RawMessage) error {
		return decodeTime("id_ttl_ms", raw, &q.request.IDTTL)
	}}}
}

// idField returns the field with the id. An empty one would mean that there is none.
func idField() field {
	return field{"id", func(q *question, raw json.RawMessage) error {
		if err := decode("id", raw, &q.request.ID, "a string"); err != nil {
			return err
		}
		return hasID(&q.request)
	}}
}

func hasID(r *limiter.Request) error {
	if r.ID == "" {
		return invalid("the id is empty: give 1 to %d bytes, or leave it out", limiter.MaxIDBytes)
	}
	return nil
}

// decodeTime reads a time of an id in milliseconds. 0 would mean that it is left out.
func decodeTime(name string, raw json.RawMessage, to *time.Duration) error {
	var ms int64
	if err := decode(name, raw, &ms, "a whole number of milliseconds"); err != nil {
		return err
	}
	return timeOf(name, ms, to)
}

func timeOf(name string, ms int64, to *time.Duration) error {
	if most := limiter.MaxIDTTL.Milliseconds(); ms < 1 || ms > most {
		return invalid("%s is %d; it must be 1 to %d, which is 24 hours", name, ms, most)
	}
	*to = time.Duration(ms) * time.Millisecond
	return nil
}

func (f *front) checkFields() []field {
	return append(append(f.resetFields(), idFields()...), holdField(), costField(),
		tenantField(), field{"peek", func(q *question, raw json.RawMessage) error {
			return decode("peek", raw, &q.peek, "true or false")
		}},
		field{"receipt", func(q *question, raw json.RawMessage) error {
			return decode("receipt", raw, &q.receipt, "true or false")
		}})
}

// tenantField is the tenant whose counters an administrator asks about.
func tenantField() field {
	return field{"tenant", func(q *question, raw json.RawMessage) error {
		return decode("tenant", raw, &q.tenant, "a string")
	}}
}

func costField() field {
	return field{"cost", func(q *question, raw json.RawMessage) error {
		var n *int64
		if err := decode("cost", raw, &n, "a whole number of units"); err != nil {
			return err
		}
		if n != nil {
			q.request.Cost = limiter.Units(*n)
		}
		return nil
	}}
}

func (f *front) resetFields() []field {
	text := func(name string, to func(q *question) *string) field {
		return field{name, func(q *question, raw json.RawMessage) error {
			return decode(name, raw, to(q), "a string")
		}}
	}
	return []field{
		{"key", func(q *question, raw json.RawMessage) error { return decode("key", raw, &q.key, "a string") }},
		text("path", func(q *question) *string { return &q.request.Path }),
		text("user", func(q *question) *string { return &q.request.User }),
		text("ip", func(q *question) *string { return &q.request.IP }),
		text("group", func(q *question) *string { return &q.request.Group }),
		text("method", func(q *question) *string { return &q.request.Method }),
		text("rule", func(q *question) *string { return &q.request.Rule }),
		{"attributes", func(q *question, raw json.RawMessage) error {
			if hasMore(raw, MaxAttributes) {
				return moreThan("request", "attributes", MaxAttributes)
			}
			return decodeByName("attributes", raw, &q.request.Attributes, "an object of strings")
		}},
		{"limits", func(q *question, raw json.RawMessage) error {
			return parseLimits(&q.request, raw, f.service.front.Allows(ActionLimits))
		}},
	}
}

// parseQuestion reads a check from a JSON object. The error wraps ErrInvalid, or states
// what the operator has not allowed.
func parseQuestion(body []byte, fields []field) (*question, error) {
	q := new(question)
	err := eachField(body, func(name string, raw json.RawMessage) error {
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		if i < 0 {
			return unknown("field", name, namesOf(fields))
		}
		return fields[i].read(q, raw)
	})
	if err == nil {
		err = q.keyed()
	}
	return q, err
}

func namesOf(fields []field) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.name
	}
	return out
}

// parseChecks reads the checks of a batch: {"checks": [{...}, ...]}.
func parseChecks(body []byte) ([]json.RawMessage, error) {
	var checks []json.RawMessage
	err := eachField(body, func(name string, raw json.RawMessage) error {
		if name != "checks" {
			return unknown("field", name, []string{"checks"})
		}
		if hasMore(raw, MaxBatch) {
			return moreThan("batch", "checks", MaxBatch)
		}
		return decode(name, raw, &checks, "an array of checks")
	})
	if err != nil {
		return nil, err
	}
	return checks, nil
}

const attributeParameter = "attr."

// parseQuery reads a check from the parameters of a URL. The error wraps ErrInvalid.
func parseQuery(raw string) (*question, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, invalid("the parameters of the address cannot be read: %v", err)
	}
	q := new(question)
	known := []string{"path", "user", "ip", "group", "method", "rule", "cost", "peek", "receipt", "id", "id_ttl_ms",
		"hold_ms", "tenant"}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if len(values[name]) > 1 {
			return nil, invalid("parameter %s is given %d times", frontend.Quote(name), len(values[name]))
		}
		value := values.Get(name)
		if attribute, ok := strings.CutPrefix(name, attributeParameter); ok && attribute != "" {
			if q.request.Attributes == nil {
				q.request.Attributes = map[string]string{}
			}
			q.request.Attributes[attribute] = value
			continue
		}
		if !slices.Contains(known, name) {
			return nil, unknown("parameter", name, append(known, attributeParameter+"NAME"))
		}
		if err := q.set(name, value); err != nil {
			return nil, err
		}
	}
	if n := len(q.request.Attributes); n > MaxAttributes {
		return nil, weirwire.TooMany("attributes", n, MaxAttributes)
	}
	return q, nil
}

// set sets the field of a URL parameter.
func (q *question) set(name, value string) error {
	r := &q.request
	switch name {
	case "path":
		r.Path = value
	case "user":
		r.User = value
	case "ip":
		r.IP = value
	case "group":
		r.Group = value
	case "method":
		r.Method = value
	case "rule":
		r.Rule = value
	case "tenant":
		q.tenant = value
	case "cost":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return invalid("cost is %s; it must be a whole number of units", frontend.Quote(value))
		}
		r.Cost = limiter.Units(n)
	case "id":
		r.ID = value
		return hasID(r)
	case "id_ttl_ms", "hold_ms":
		ms, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return invalid("%s is %s; it must be a whole number of milliseconds", name, frontend.Quote(value))
		}
		if name == "hold_ms" {
			return timeOf(name, ms, &r.Hold)
		}
		return timeOf(name, ms, &r.IDTTL)
	case "peek", "receipt":
		if value != "true" && value != "false" {
			return invalid("%s is %s; it must be true or false", name, frontend.Quote(value))
		}
		if name == "peek" {
			q.peek = value == "true"
		} else {
			q.receipt = value == "true"
		}
	}
	return nil
}

// amendment is what a question says of a reservation.
type amendment struct {
	actual *int64
	named  map[string]int64 // by attribute, in place of actual
	ignore bool             // charge nothing if the id is not known
}

// holdField returns the field that makes a check a reservation, or extends one.
func holdField() field {
	return field{"hold_ms", func(q *question, raw json.RawMessage) error {
		return decodeTime("hold_ms", raw, &q.request.Hold)
	}}
}
