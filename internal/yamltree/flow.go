package yamltree

import (
	"strings"

	"github.com/goccy/go-yaml/token"

	"github.com/weirlimit/weir/internal/spelling"
)

// joinColons repairs plain values with colons in flow style. Within braces the library
// takes the first colon of a list's element for one that follows a key, even if no blank
// follows it (its issue 832): it reads the element of {key: [attr:plan]} as attr, colon
// and plan, and reports an error. In YAML such a colon is part of the value, and
// addresses such as ::1 have colons, too.
//
// Only elements of lists are joined. In braces, {limit:5} stays a field with a value,
// since that is what its author meant.
func joinColons(tokens token.Tokens) token.Tokens {
	var open []token.Type
	out := tokens[:0]
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			open = append(open, t.Type)
		case token.MappingEndType, token.SequenceEndType:
			open = open[:max(0, len(open)-1)]
		case token.MappingValueType:
			inList := len(open) > 0 && open[len(open)-1] == token.SequenceStartType
			if !inList || i+1 == len(tokens) || !follows(tokens[i+1]) {
				break
			}
			joined := t.Value + tokens[i+1].Value
			switch head := out[len(out)-1]; {
			case precedes(head):
				out[len(out)-1] = token.String(head.Value+joined, head.Origin+joined, head.Position)
				i++
				continue
			case head.Type == token.SequenceStartType, head.Type == token.CollectEntryType:
				t = token.String(joined, joined, t.Position)
				i++
			}
		}
		out = append(out, t)
	}
	return out
}

// plainValue reports whether t is a value without quotes.
func plainValue(t *token.Token) bool {
	switch t.Type {
	case token.StringType, token.NullType, token.BoolType, token.InfinityType, token.NanType, token.IntegerType,
		token.BinaryIntegerType, token.OctetIntegerType, token.HexIntegerType, token.FloatType:
		return true
	}
	return false
}

// precedes reports whether t is a value without quotes that ends where the next token
// begins.
func precedes(t *token.Token) bool {
	return plainValue(t) && strings.TrimRight(t.Origin, " \t\n") == t.Origin
}

// follows reports whether t is a value without quotes that begins where the token before
// it ends.
func follows(t *token.Token) bool {
	return plainValue(t) && strings.TrimLeft(t.Origin, " \t\n") == t.Origin
}

// missingComma reports a value without quotes in flow style that contains a colon and a
// blank, as in {method: GET group: free}. YAML forbids it; the library takes all of
// "GET group: free" for the method.
func (g *tokenCheck) missingComma(t *token.Token) {
	if !plainValue(t) || len(g.open) == 0 || g.open[len(g.open)-1].kind < frameBrackets {
		return
	}
	if before, _, found := strings.Cut(t.Value, ": "); found {
		name := before[strings.LastIndexByte(before, ' ')+1:]
		g.refuse(t, "%s contains a colon followed by a blank: put a comma before %s if that is a field, else put the value "+
			"in quotes",
			spelling.Quote(t.Value), spelling.Quote(name))
	}
}
