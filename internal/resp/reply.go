package resp

import (
	"strconv"
	"strings"
)

// reply collects the replies of a connection until they are written.
type reply struct {
	buf   []byte
	kept  *[]byte // from which buf was taken, for the server's pool
	resp3 bool    // the client has chosen RESP3
}

func (r *reply) line(kind byte, text string) {
	r.buf = append(r.buf, kind)
	r.buf = append(r.buf, text...)
	r.buf = append(r.buf, '\r', '\n')
}

func (r *reply) number(kind byte, n int64) {
	r.buf = append(r.buf, kind)
	r.buf = strconv.AppendInt(r.buf, n, 10)
	r.buf = append(r.buf, '\r', '\n')
}

// raw appends what is part of a reply already, such as a constant text with its length.
func (r *reply) raw(text string) { r.buf = append(r.buf, text...) }

// simple appends a short text without line breaks.
func (r *reply) simple(text string) { r.line('+', text) }

func (r *reply) ok() { r.simple("OK") }

func (r *reply) integer(n int64) { r.number(':', n) }

// array begins an array of n elements.
func (r *reply) array(n int) { r.number('*', int64(n)) }

// mapping begins n pairs of a name and a value: a map, or in RESP2 an array with twice as
// many elements.
func (r *reply) mapping(n int) {
	if r.resp3 {
		r.number('%', int64(n))
		return
	}
	r.array(2 * n)
}

// bulk appends a text of any bytes.
func (r *reply) bulk(text string) {
	r.number('$', int64(len(text)))
	r.buf = append(r.buf, text...)
	r.buf = append(r.buf, '\r', '\n')
}

// null appends what stands for no value.
func (r *reply) null() {
	if r.resp3 {
		r.raw("_\r\n")
		return
	}
	r.raw("$-1\r\n")
}

// truth appends 1 or 0, which RESP3 has a type for.
func (r *reply) truth(b bool) {
	switch {
	case r.resp3 && b:
		r.raw("#t\r\n")
	case r.resp3:
		r.raw("#f\r\n")
	case b:
		r.raw(":1\r\n")
	default:
		r.raw(":0\r\n")
	}
}

// fail appends an error: a code in capitals, such as ERR, and a text.
func (r *reply) fail(code, text string) {
	r.line('-', code+" "+strings.Map(func(c rune) rune {
		if c == '\r' || c == '\n' {
			return ' ' // either would end the line
		}
		return c
	}, text))
}
