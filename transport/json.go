package transport

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/spelling"
)

// decode reads a JSON value. wanted describes the expected value for the error.
func decode(name string, raw json.RawMessage, to any, wanted string) error {
	if err := json.Unmarshal(raw, to); err != nil {
		return invalid("%s is %s; it must be %s", name, shorten(raw), wanted)
	}
	return nil
}

// decodeByName reads a JSON object of values by name, and refuses one that has a name twice: another reader of
// the same body may take the other value.
func decodeByName(name string, raw json.RawMessage, to any, wanted string) error {
	if err := decode(name, raw, to, wanted); err != nil || raw[0] != '{' {
		return err
	}
	return eachField(raw, func(string, json.RawMessage) error { return nil })
}

// hasMore reports whether an object has more than most fields, or an array more than
// most elements, before it is decoded. For any other value, and for invalid JSON, it
// reports false.
func hasMore(raw json.RawMessage, most int) bool {
	n := 0
	d := json.NewDecoder(bytes.NewReader(raw))
	t, err := d.Token()
	in, _ := t.(json.Delim)
	var value json.RawMessage // its memory is reused
	for ; n <= most && err == nil && d.More(); n++ {
		if in == '{' {
			_, err = d.Token() // the name
		}
		if err == nil {
			err = d.Decode(&value)
		}
	}
	return n > most
}

// moreThan returns the error for too many parts.
func moreThan(who, what string, most int) error {
	return invalid("the %s has more than %d %s; at most %d are allowed", who, most, what, most)
}

// shorten returns the beginning of a value.
func shorten(raw json.RawMessage) string {
	const most = 60
	if len(raw) > most {
		return string(raw[:most]) + "..."
	}
	return string(raw)
}

// eachField calls visit with each field of a JSON object, after which nothing may
// follow. Unlike decoding into a struct, it detects fields that are given twice or in
// another case.
func eachField(body []byte, visit func(name string, raw json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		if err == nil {
			return invalid("JSON: an object is needed, not %s", shorten(body))
		}
		return malformed(d, err)
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return malformed(d, err)
		}
		name, _ := t.(string) // in an object it is always a string
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return malformed(d, err)
		}
		if seen[name] {
			return invalid("field %s is given twice", frontend.Quote(name))
		}
		seen[name] = true
		if err := visit(name, raw); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return malformed(d, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return invalid("JSON: more follows after the object, from byte %d on", d.InputOffset())
	}
	return nil
}

func malformed(d *json.Decoder, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid("JSON: it ends in the middle, after %d bytes", d.InputOffset())
	}
	return invalid("JSON: %v, near byte %d", err, d.InputOffset())
}

// unknown returns an error for an unknown name. It suggests the most similar known one
// or, if none is similar, lists all.
func unknown(what, got string, known []string) error {
	if s := spelling.Nearest(got, known); s != "" {
		return invalid("unknown %s %s; did you mean %q?", what, frontend.Quote(got), s)
	}
	return invalid("unknown %s %s; known: %s", what, frontend.Quote(got), strings.Join(known, ", "))
}
