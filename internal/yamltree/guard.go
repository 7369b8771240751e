package yamltree

import (
	"slices"

	"github.com/goccy/go-yaml/token"
)

// Bounds of a file's structure, beside those of its [Form]. The YAML library recurses once for each
// level of nesting and each key of a mapping, copies the rest of the file for each omitted
// value, and repeats the names of all outer keys in each inner one. The bounds are
// checked on the tokens before anything is parsed, so that no file can exhaust the
// stack, which would end the process, or take minutes.
const (
	maxKeyName = 64   // bytes in one key
	maxLeftOut = 2000 // values left out, as in "device:"
)

// withoutComments removes comments in place.
func withoutComments(tokens token.Tokens) token.Tokens {
	return slices.DeleteFunc(tokens, func(t *token.Token) bool { return t.Type == token.CommentType })
}

// guard reports whether the tokens, without comments, may be passed to the parser, and
// reports the problems if not. YAML features that files of ours do not need (anchors,
// tags and others) are refused here, too.
func guard(tokens token.Tokens, r *reader) bool {
	g := tokenCheck{reader: r}
	for i, t := range tokens {
		if t.Type == token.InvalidType {
			// The scanner recovers badly, so later errors would mislead.
			r.unreadable(t.Position.Line, t.Position.Column, t.Error)
			return false
		}
		var next, before *token.Token
		if i+1 < len(tokens) {
			next = tokens[i+1]
		}
		if i > 0 {
			before = tokens[i-1]
		}
		g.unsupported(t)
		if g.missingComma(t); !g.shape(before, t, next) {
			return false
		}
	}
	return !g.failed
}

// frame is a mapping or sequence that has not ended at a token.
type frame struct {
	kind   frameKind
	column int  // of its keys or dashes, in block style
	keys   int  // seen so far
	colon  bool // in braces: the entry that is being read has a ":"
}

type frameKind uint8

const (
	frameMapping  frameKind = iota // in block style
	frameSequence                  // in block style
	frameBrackets
	frameBraces
)

// tokenCheck is what guard knows of the tokens before the present one.
type tokenCheck struct {
	*reader
	open      []frame
	documents int
	ends      int
	leftOut   int
}

func (g *tokenCheck) refuse(t *token.Token, format string, args ...any) {
	g.add(t.Position.Line, t.Position.Column, format, args...)
}

// unsupported reports features that no file of ours uses. Many aliases of a large
// value are the classic YAML bomb; without anchors it is impossible.
func (g *tokenCheck) unsupported(t *token.Token) {
	switch t.Type {
	case token.AnchorType:
		g.refuse(t, "anchors (&name) are not supported%s; quote a value that begins with &", g.Shared)
	case token.AliasType:
		g.refuse(t, "aliases (*name) are not supported%s; quote a value that begins with *", g.Shared)
	case token.MergeKeyType:
		g.refuse(t, "merge keys (<<) are not supported%s", g.Shared)
	case token.TagType:
		g.refuse(t, "tags (!name) are not supported; quote a value that begins with !")
	case token.DirectiveType:
		g.refuse(t, "directives (%%NAME) are not supported; quote a value that begins with %%")
	case token.MappingKeyType:
		g.refuse(t, `keys in the form "? key" are not supported; write "key: value"`)
	case token.DocumentHeaderType:
		if g.documents++; g.documents == 2 {
			g.refuse(t, "a second document begins here; %s is one document", g.Name)
		}
	case token.DocumentEndType:
		if g.ends++; g.ends == 2 {
			g.refuse(t, "a second document ends here; %s is one document", g.Name)
		}
	}
}

// shape tracks the nesting and reports whether to continue: beyond a bound the rest of
// the file tells nothing more.
func (g *tokenCheck) shape(before, t, next *token.Token) bool {
	switch t.Type {
	case token.MappingStartType:
		g.open = append(g.open, frame{kind: frameBraces})
	case token.SequenceStartType:
		g.open = append(g.open, frame{kind: frameBrackets})
	case token.MappingEndType, token.SequenceEndType:
		g.endEntry(before)
		if len(g.open) > 0 {
			g.open = g.open[:len(g.open)-1]
		}
	case token.CollectEntryType:
		g.endEntry(before)
	case token.SequenceEntryType:
		g.dash(t)
		g.countLeftOut(t, t, next)
	case token.MappingValueType:
		if before != nil && !g.key(before) {
			return false
		}
		g.countLeftOut(before, t, next)
	}
	if len(g.open) > g.Depth {
		g.refuse(t, "nested more than %d levels deep", g.Depth)
		return false
	}
	if g.leftOut > maxLeftOut {
		g.refuse(t, "more than %d values are left out%s", maxLeftOut, g.LeftOut)
		return false
	}
	return true
}

// endEntry ends an entry of the innermost brackets or braces, and with it all block
// collections inside. In braces, a single word is a key without a value.
func (g *tokenCheck) endEntry(before *token.Token) {
	for len(g.open) > 0 {
		last := &g.open[len(g.open)-1]
		switch last.kind {
		case frameBraces:
			if !last.colon && before.Type != token.MappingStartType && before.Type != token.CollectEntryType {
				g.leftOut++
			}
			last.colon = false
			return
		case frameBrackets:
			return
		}
		g.open = g.open[:len(g.open)-1]
	}
}

// closeBlocks ends the block collections with a larger indentation than column.
func (g *tokenCheck) closeBlocks(column int) {
	for len(g.open) > 0 {
		last := g.open[len(g.open)-1]
		if last.kind >= frameBrackets || last.column <= column {
			return
		}
		g.open = g.open[:len(g.open)-1]
	}
}

// dash handles a "-" in block style.
func (g *tokenCheck) dash(t *token.Token) {
	column := t.Position.Column
	g.closeBlocks(column)
	if n := len(g.open); n > 0 && g.open[n-1].kind == frameSequence && g.open[n-1].column == column {
		return
	}
	g.open = append(g.open, frame{kind: frameSequence, column: column})
}

// key handles the key before a ":" and reports whether it is within the bounds.
func (g *tokenCheck) key(t *token.Token) bool {
	if len(t.Value) > maxKeyName {
		g.refuse(t, "a field's name has %d bytes; at most %d are allowed", len(t.Value), maxKeyName)
		return false
	}
	f := g.mapping(t.Position.Column)
	f.colon = true
	if f.keys++; f.keys > g.Keys {
		g.refuse(t, "more than %d fields in one mapping", g.Keys)
		return false
	}
	return true
}

// mapping returns the frame of a key in this column.
func (g *tokenCheck) mapping(column int) *frame {
	g.closeBlocks(column)
	n := len(g.open)
	if n > 0 && g.open[n-1].kind == frameSequence && g.open[n-1].column == column {
		n-- // "rules:" and its dashes may stand in one column
		g.open = g.open[:n]
	}
	if n == 0 || g.open[n-1].kind == frameSequence || g.open[n-1].kind == frameMapping && g.open[n-1].column != column {
		g.open = append(g.open, frame{kind: frameMapping, column: column})
		n++
	}
	return &g.open[n-1]
}

// countLeftOut counts t, a ":" or "-", if it has no value: if nothing follows, or a
// bracket or comma, or something that is not indented further than start, which is the
// key or the dash.
func (g *tokenCheck) countLeftOut(start, t, next *token.Token) {
	switch {
	case next == nil, next.Type == token.CollectEntryType, next.Type == token.MappingEndType,
		next.Type == token.SequenceEndType:
		g.leftOut++
	case start == nil || next.Position.Line == t.Position.Line:
	case t.Type == token.MappingValueType && next.Type == token.SequenceEntryType &&
		next.Position.Column == start.Position.Column:
		// A list may start in the column of its key.
	case next.Position.Column <= start.Position.Column:
		g.leftOut++
	}
}
