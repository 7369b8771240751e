package resp

import (
	"bytes"
	"strconv"
)

const (
	// maxArgs is the most arguments of a command, with its name.
	maxArgs = 64
	// maxCommand is the greatest length of a command in bytes, as it is sent.
	maxCommand = 64 << 10
	// maxArg is the greatest length of an argument in bytes. A longer one is passed over, up to maxPassed, so that
	// a key that comes from elsewhere does not end the connection of all others.
	maxArg    = maxCommand
	maxPassed = 1 << 20
	// maxInline is the greatest length of a command that is sent as a line of text.
	maxInline = 1 << 10
	// maxArgsBefore and maxArgBefore hold until the client has proved who it is, where it
	// must.
	maxArgsBefore = 10
	maxArgBefore  = maxToken + 64
	// maxNumber is the greatest length of a number in the protocol itself.
	maxNumber = 20
	// maxDigits is how many digits surely fit a number of 64 bits.
	maxDigits = 18
)

// protocolError is what ends a connection, since it is not known where the next command
// begins. The texts are those of Redis.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// longError is the error of a command that is too long to be carried out, after its end: the next one follows.
type longError struct {
	bytes int  // its length
	many  bool // it has too many arguments
}

func (e longError) Error() string {
	if e.many {
		return "the command has more than " + strconv.Itoa(maxArgs) + " arguments: nothing of it was carried out"
	}
	return "the command has " + strconv.Itoa(e.bytes) + " bytes; at most 65536 are carried out"
}

// parser takes commands from what a client has sent. It keeps its memory.
type parser struct {
	args [][]byte
	text []byte // unquoted arguments of a line of text
	// most and mostBytes are the bounds of arguments.
	most, mostBytes int
	passing         passing
}

// passing is what is left of a command that is too long. The zero value is that of none.
type passing struct {
	args  int  // that have not begun
	bytes int  // of the present argument, with its end of a line
	over  int  // that have been passed over
	many  bool // it has too many arguments
}

// pass passes over what data has of a command that is too long. It returns how many bytes these are, and a
// [longError] if the command ends there.
func (p *parser) pass(data []byte) (n int, err error) {
	for l := &p.passing; ; {
		now := min(l.bytes, len(data)-n)
		l.bytes, n = l.bytes-now, n+now
		if l.bytes == 0 && l.args == 0 {
			err = longError{l.over + n, l.many}
			*l = passing{}
			return n, err
		}
		if n == len(data) {
			l.over += n
			return n, nil
		}
		size, begin, err := p.argument(data, n)
		switch {
		case err != nil:
			return 0, err
		case begin == 0:
			l.over += n
			return n, nil
		case l.over+begin+size > maxPassed:
			return 0, protocolError("invalid bulk length")
		}
		l.args, l.bytes, n = l.args-1, size+2, begin
	}
}

// passFrom begins to pass over a command, of which data has what l says and more.
func (p *parser) passFrom(data []byte, l passing) (args [][]byte, n int, err error) {
	p.passing = l
	if n, err = p.pass(data[l.over:]); n > 0 || err == nil {
		n += l.over
	}
	return nil, n, err
}

// argument reads the length of an argument, and returns the index of its first byte, 0 if the length is not complete.
func (p *parser) argument(data []byte, at int) (size, begin int, err error) {
	if data[at] != '$' {
		return 0, 0, protocolError("expected '$', got " + strconv.QuoteToASCII(string(data[at:at+1])))
	}
	n, begin, err := number(data, at+1, "invalid bulk length", "too big bulk count string")
	if err == nil && (n < 0 || n > maxPassed) {
		err = protocolError("invalid bulk length")
	}
	return int(n), begin, err
}

// next returns the arguments of the first command of data, and its length in bytes: 0 if
// the command is not complete. The arguments lie in data and in the parser; they are valid
// until the next call. A command may have no arguments, which means nothing. The error is
// a [protocolError], or a [longError] with the length of the end of a command that is too long.
func (p *parser) next(data []byte) (args [][]byte, n int, err error) {
	p.args = p.args[:0]
	if len(data) == 0 {
		return nil, 0, nil
	}
	if p.passing != (passing{}) {
		n, err = p.pass(data)
		return nil, n, err
	}
	if data[0] != '*' {
		return p.line(data)
	}
	count, at, err := number(data, 1, "invalid multibulk length", "too big mbulk count string")
	if err != nil || at == 0 {
		return nil, 0, err
	}
	switch {
	case count <= int64(p.most):
	case p.mostBytes < maxArg || count > maxPassed: // or the client has not proved who it is
		return nil, 0, protocolError("invalid multibulk length")
	default:
		return p.passFrom(data, passing{args: int(count), over: at, many: true})
	}
	for i := range count { // a negative count means no arguments, as in Redis
		if at == len(data) {
			return nil, 0, nil
		}
		size, begin, err := p.argument(data, at)
		switch {
		case err != nil:
			return nil, 0, err
		case begin == 0:
			return nil, 0, nil
		}
		end := begin + size
		switch long := end+2 > maxCommand; {
		case p.mostBytes < maxArg && (long || size > p.mostBytes): // the client has not proved who it is
			return nil, 0, protocolError("invalid bulk length")
		case long:
			return p.passFrom(data, passing{args: int(count-i) - 1, bytes: size + 2, over: begin})
		}
		if len(data) < end+2 {
			return nil, 0, nil
		}
		if data[end] != '\r' || data[end+1] != '\n' {
			return nil, 0, protocolError("expected the end of a line after an argument")
		}
		p.args = append(p.args, data[begin:end])
		at = end + 2
	}
	return p.args, at, nil
}

// number reads a number that ends with a line. The index is that of what follows, 0 if the
// line is not complete.
func number(data []byte, at int, invalid, long string) (n int64, next int, err error) {
	for i := at; i < min(len(data)-1, at+maxDigits+1); i++ { // what nearly every number is
		switch d := data[i]; {
		case '0' <= d && d <= '9':
			n = 10*n + int64(d-'0')
			continue
		case d == '\r' && data[i+1] == '\n' && i > at:
			return n, i + 2, nil
		}
		break
	}
	line := data[at:min(len(data), at+maxNumber+2)]
	end := bytes.IndexByte(line, '\n')
	switch {
	case end < 0 && len(line) >= maxNumber+2:
		return 0, 0, protocolError(long)
	case end < 0:
		return 0, 0, nil
	case end < 2 || line[end-1] != '\r':
		return 0, 0, protocolError(invalid)
	}
	n, err = strconv.ParseInt(string(line[:end-1]), 10, 64)
	if err != nil {
		return 0, 0, protocolError(invalid)
	}
	return n, at + end + 1, nil
}

// line reads a command that is sent as a line of text.
func (p *parser) line(data []byte) ([][]byte, int, error) {
	end := bytes.IndexByte(data[:min(len(data), maxInline)], '\n')
	if end < 0 {
		if len(data) >= maxInline {
			return nil, 0, protocolError("too big inline request")
		}
		return nil, 0, nil
	}
	line, _, _ := bytes.Cut(data[:end], []byte{0}) // as the original does, where a line ends with that, too
	if cap(p.text) < maxInline {
		p.text = make([]byte, 0, maxInline) // so that appending does not move it
	}
	p.text = p.text[:0]
	for {
		line = bytes.TrimLeft(line, spaces)
		if len(line) == 0 {
			return p.args, end + 1, nil
		}
		if len(p.args) == p.most {
			p.args = p.args[:0]
			return nil, end + 1, longError{end + 1, true}
		}
		rest, ok := p.word(line)
		if !ok {
			return nil, 0, protocolError("unbalanced quotes in request")
		}
		line = rest
	}
}

// spaces are before words, and after quotes.
const spaces = " \t\r\v\f"

// word takes the first word of a line. It may have one part in quotes, which ends it: in "double" ones \n, \r, \t, \a,
// \b, \xHH and a \ before any other character stand for one character, in 'single' ones \' does. It reports false if a
// quote does not end, or something follows it at once.
func (p *parser) word(line []byte) (rest []byte, ok bool) {
	begin := len(p.text)
	quote := byte(0)
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case quote == 0 && (c == ' ' || c == '\t' || c == '\r'):
			p.args = append(p.args, p.text[begin:])
			return line[i:], true
		case quote != 0 && c == quote:
			if i+1 < len(line) && !bytes.ContainsRune([]byte(spaces), rune(line[i+1])) {
				return nil, false
			}
			p.args = append(p.args, p.text[begin:])
			return line[i+1:], true
		case quote != 0 && c == '\\' && i+1 < len(line) && (quote == '"' || line[i+1] == '\''):
			one, n := unescaped(line[i+1:])
			p.text = append(p.text, one)
			i += n
		default:
			p.text = append(p.text, c)
		}
	}
	if quote != 0 {
		return nil, false
	}
	p.args = append(p.args, p.text[begin:])
	return nil, true
}

// unescaped returns what a \ and the n characters after it stand for.
func unescaped(after []byte) (c byte, n int) {
	if len(after) > 2 && after[0] == 'x' {
		if x, err := strconv.ParseUint(string(after[1:3]), 16, 8); err == nil {
			return byte(x), 3
		}
	}
	if i := bytes.IndexByte([]byte("nrtab"), after[0]); i >= 0 {
		return "\n\r\t\a\b"[i], 1
	}
	return after[0], 1
}
