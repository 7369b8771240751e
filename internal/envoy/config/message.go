package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// ParseMessages reads the messages of type ratelimit.config.ratelimit.v3.RateLimitConfig, as
// xDS carries them, into a configuration. They mean what files with the same fields do, and
// the same is refused. The error begins with the name of the message that is wrong.
// share_threshold and value_to_metric are not in these messages.
func ParseMessages(messages [][]byte, o Options) (*Config, error) {
	p := &parser{options: o, config: &Config{domains: make(map[string]*level)}}
	m := &messageReader{left: maxDescriptors, values: maxValues}
	for i, data := range messages {
		root := new(fileRoot)
		name, err := m.config(data, root)
		if err == nil {
			err = p.root(root)
		}
		if err != nil {
			name = cmp.Or(name, "resource "+strconv.Itoa(i))
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return p.config, nil
}

// maxValues bounds the values in the metadata of all messages together.
const maxValues = 100_000

// messageReader decodes messages. It counts descriptors and values of metadata before it makes any.
type messageReader struct{ left, values int }

// field is one field of a message. Of number and bytes, the one of its kind is set.
type field struct {
	id     protowire.Number
	kind   protowire.Type
	number uint64
	bytes  []byte
}

func (f *field) text(to *string) error {
	if !utf8.Valid(f.bytes) {
		return errors.New("error loading config: a text is not valid UTF-8")
	}
	*to = string(f.bytes)
	return nil
}

// fields calls f with each field that is a number or has bytes. Others have no meaning here.
func fields(data []byte, f func(*field) error) error {
	for len(data) > 0 {
		id, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return malformed(n)
		}
		data = data[n:]
		size := protowire.ConsumeFieldValue(id, kind, data)
		if size < 0 {
			return malformed(size)
		}
		v := field{id: id, kind: kind}
		switch kind {
		case protowire.VarintType:
			v.number, _ = protowire.ConsumeVarint(data)
		case protowire.Fixed64Type:
			v.number, _ = protowire.ConsumeFixed64(data)
		case protowire.BytesType:
			v.bytes, _ = protowire.ConsumeBytes(data)
		default:
			data = data[size:]
			continue
		}
		if err := f(&v); err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}

func malformed(n int) error {
	return fmt.Errorf("error loading config: the message is not valid: %w", protowire.ParseError(n))
}

// config decodes a RateLimitConfig. It returns its name also with an error.
func (m *messageReader) config(data []byte, to *fileRoot) (name string, err error) {
	err = fields(data, func(f *field) error {
		if f.kind != protowire.BytesType {
			return nil
		}
		switch f.id {
		case 1:
			return f.text(&name)
		case 2:
			return f.text(&to.Domain)
		case 3:
			return m.descriptor(f.bytes, &to.Descriptors, 0)
		}
		return nil
	})
	return name, err
}

// descriptor decodes a RateLimitDescriptor and appends it.
func (m *messageReader) descriptor(data []byte, to *[]fileDescriptor, depth int) error {
	if m.left--; m.left < 0 {
		return fmt.Errorf("there are more than %d descriptors: use fewer", maxDescriptors)
	}
	if depth > maxDepth {
		return fmt.Errorf("descriptors are nested more than %d levels deep: flatten them", maxDepth)
	}
	var d fileDescriptor
	err := fields(data, func(f *field) error {
		if f.kind == protowire.VarintType {
			switch f.id {
			case 5:
				d.ShadowMode = f.number != 0
			case 6:
				d.DetailedMetric = f.number != 0
			case 7:
				d.QuotaMode = f.number != 0
			}
			return nil
		}
		if f.kind != protowire.BytesType {
			return nil
		}
		switch f.id {
		case 1:
			return f.text(&d.Key)
		case 2:
			return f.text(&d.Value)
		case 3:
			d.RateLimit = cmp.Or(d.RateLimit, &fileLimit{Unit: "unknown"})
			return policy(f.bytes, d.RateLimit)
		case 4:
			return m.descriptor(f.bytes, &d.Descriptors, depth+1)
		case 8:
			if d.Metadata == nil {
				d.Metadata = make(map[string]any)
			}
			return m.object(f.bytes, d.Metadata, 0)
		}
		return nil
	})
	*to = append(*to, d)
	return err
}

// object decodes a google.protobuf.Struct into a map, as encoding/json has its values.
func (m *messageReader) object(data []byte, to map[string]any, depth int) error {
	return fields(data, func(f *field) error {
		if f.id != 1 || f.kind != protowire.BytesType {
			return nil
		}
		name, value := "", any(nil)
		err := fields(f.bytes, func(f *field) (err error) {
			switch {
			case f.kind != protowire.BytesType:
			case f.id == 1:
				err = f.text(&name)
			case f.id == 2:
				value, err = m.value(f.bytes, depth+1)
			}
			return err
		})
		to[name] = value
		return err
	})
}

// value decodes a google.protobuf.Value.
func (m *messageReader) value(data []byte, depth int) (out any, err error) {
	if m.values--; m.values < 0 {
		return nil, fmt.Errorf("error parsing metadata: there are more than %d values: use fewer", maxValues)
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("error parsing metadata: it is nested more than %d levels deep", maxDepth)
	}
	err = fields(data, func(f *field) error {
		switch {
		case f.id == 1 && f.kind == protowire.VarintType:
			out = nil
		case f.id == 2 && f.kind == protowire.Fixed64Type:
			out = math.Float64frombits(f.number)
		case f.id == 3 && f.kind == protowire.BytesType:
			text := ""
			err := f.text(&text)
			out = text
			return err
		case f.id == 4 && f.kind == protowire.VarintType:
			out = f.number != 0
		case f.id == 5 && f.kind == protowire.BytesType:
			inner := make(map[string]any)
			out = inner
			return m.object(f.bytes, inner, depth)
		case f.id == 6 && f.kind == protowire.BytesType:
			list := []any{}
			err := fields(f.bytes, func(f *field) error {
				if f.id != 1 || f.kind != protowire.BytesType {
					return nil
				}
				v, err := m.value(f.bytes, depth+1)
				list = append(list, v)
				return err
			})
			out = list
			return err
		}
		return nil
	})
	return out, err
}

// maxReplaces bounds the names that one limit replaces.
const maxReplaces = 1000

// policy decodes a RateLimitPolicy.
func policy(data []byte, to *fileLimit) error {
	return fields(data, func(f *field) error {
		if f.kind == protowire.VarintType {
			switch f.id {
			case 1:
				to.Unit = strconv.FormatUint(f.number, 10)
				if u := Unit(min(f.number, 255)); u.Valid() || u == 0 {
					to.Unit = u.String()
				}
			case 2:
				to.RequestsPerUnit = uint32(f.number) // what a decoder of protocol buffers makes of it
			case 3:
				to.Unlimited = f.number != 0
			}
			return nil
		}
		if f.kind != protowire.BytesType {
			return nil
		}
		switch f.id {
		case 4:
			return f.text(&to.Name)
		case 5:
			if len(to.Replaces) == maxReplaces {
				return fmt.Errorf("a limit replaces more than %d others", maxReplaces)
			}
			var r struct{ Name string }
			err := fields(f.bytes, func(f *field) error {
				if f.id == 1 && f.kind == protowire.BytesType {
					return f.text(&r.Name)
				}
				return nil
			})
			to.Replaces = append(to.Replaces, r)
			return err
		}
		return nil
	})
}
