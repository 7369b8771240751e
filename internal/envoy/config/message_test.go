package config_test

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/limiter"
)

// message encodes fields: numbers, texts, and messages as bytes.
func message(fields ...any) (out []byte) {
	for i := 0; i < len(fields); i += 2 {
		id := protowire.Number(fields[i].(int))
		switch v := fields[i+1].(type) {
		case int:
			out = protowire.AppendVarint(protowire.AppendTag(out, id, protowire.VarintType), uint64(v))
		case string:
			out = protowire.AppendString(protowire.AppendTag(out, id, protowire.BytesType), v)
		case []byte:
			out = protowire.AppendBytes(protowire.AppendTag(out, id, protowire.BytesType), v)
		}
	}
	return out
}

// A message means what a file with the same fields means.
func TestMessages(t *testing.T) {
	limit := message(1, 2, 2, 3, 4, "slow", 5, message(1, "fast"), 5, message(1, "other"))
	c, err := config.ParseMessages([][]byte{
		message(1, "first", 2, "edge", 9, 7,
			3, message(1, "user", 2, "ada", 3, limit, 5, 1, 4, message(1, "path", 3, message(1, 7, 2, 8), 7, 1)),
			3, message(1, "free", 3, message(3, 1))),
		message(1, "second", 2, "inner"),
	}, config.Options{})
	if err != nil || c.Domains() != 2 {
		t.Fatal(c, err)
	}
	if got, want := c.Lines(), []string{
		"edge.free: unlimited, shadow_mode: false, quota_mode: false",
		"edge.user_ada.path: unit=WEEK requests_per_unit=8, shadow_mode: false, quota_mode: true",
		"edge.user_ada: unit=MINUTE requests_per_unit=3, shadow_mode: true, quota_mode: false",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	l, _ := c.Lookup("edge", []config.Entry{{Key: "user", Value: "ada"}}, nil)
	if l == nil || l.Name != "slow" || !slices.Equal(l.Replaces, []string{"fast", "other"}) {
		t.Errorf("%+v", l)
	}
}

// Metadata of a message is what a google.protobuf.Struct has, and says how the limit counts under the same key.
func TestMetadataOfMessages(t *testing.T) {
	given := map[string]any{
		"tier": "gold", "n": 1.5, "yes": true, "no": false, "nothing": nil, "list": []any{1.0, "two", []any{}},
		"map": map[string]any{"a": map[string]any{}},
	}
	whole := map[string]any{"weir": map[string]any{"algorithm": "token_bucket", "burst": 20.0}}
	maps.Copy(whole, given)
	form, err := structpb.NewStruct(whole)
	if err != nil {
		t.Fatal(err)
	}
	data, err := proto.Marshal(form)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.ParseMessages([][]byte{message(1, "m", 2, "edge", 3,
		message(1, "user", 3, message(1, 2, 2, 3), 8, data))}, config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := c.Lookup("edge", []config.Entry{{Key: "user", Value: "ada"}}, nil)
	if !reflect.DeepEqual(l.Metadata, given) {
		t.Errorf("%v", l.Metadata)
	}
	if !l.Form.Own || l.Form.Algorithm != limiter.TokenBucket || l.Form.Burst != 20 {
		t.Errorf("%+v", l.Form)
	}
	nested := message(3, "x")
	for range 100 {
		nested = message(6, message(1, nested))
	}
	for want, bad := range map[string][]byte{
		"unknown key 'x'":                  message(1, message(1, "weir", 2, message(5, message(1, message(1, "x"))))),
		"nested more than 64 levels":       message(1, message(1, "x", 2, nested)),
		"more than 100000 values":          message(1, message(1, "x", 2, message(6, bytes.Repeat(message(1, ""), 100_001)))),
		"a text is not valid UTF-8":        message(1, message(1, "x", 2, message(3, "\xff"))),
		"weir has no effect":               nil,
		"the message is not valid: unexpe": message(1, message(1, "x", 2, []byte{0x11, 1})),
	} {
		limit := message(1, 2, 2, 3)
		d := message(1, "user", 3, limit, 8, bad)
		if bad == nil {
			d = message(1, "user", 8, data)
		}
		if _, err := config.ParseMessages([][]byte{message(1, "m", 2, "edge", 3, d)}, config.Options{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestMessagesRefused(t *testing.T) {
	deep := message(1, "\xff") // which is only reached by a decoder that goes so deep
	for range 100 {
		deep = message(1, "k", 4, deep)
	}
	wide := []any{2, "edge"}
	for range 100_001 {
		wide = append(wide, 3, []byte{})
	}
	var leaves []any
	for i := range 50_000 {
		leaves = append(leaves, 4, message(1, strconv.Itoa(i), 3, message(1, 1, 2, 1)))
	}
	long := message(append([]any{1, strings.Repeat("k", 4<<20)}, leaves...)...)
	nested := message(append([]any{1, "k"}, leaves...)...)
	for range 60 {
		nested = message(1, "k", 4, nested)
	}
	for _, x := range []struct {
		what     string
		messages [][]byte
		want     string
	}{
		{"no domain", [][]byte{message(1, "m")}, "m: config file cannot have empty domain"},
		{"no name", [][]byte{message(2, "a"), message(2, "a")}, "resource 1: duplicate domain 'a' in config file"},
		{"no key", [][]byte{message(1, "m", 2, "a", 3, message(2, "v"))}, "m: descriptor has empty key"},
		{"no unit", [][]byte{message(1, "m", 2, "a", 3, message(1, "k", 3, message(2, 4)))},
			"m: invalid rate limit unit 'unknown'"},
		{"unit 0", [][]byte{message(1, "m", 2, "a", 3, message(1, "k", 3, message(1, 0)))},
			"m: invalid rate limit unit 'unknown'"},
		{"unit 8", [][]byte{message(1, "m", 2, "a", 3, message(1, "k", 3, message(1, 8)))}, "m: invalid rate limit unit '8'"},
		{"unlimited and a unit", [][]byte{message(1, "m", 2, "a", 3, message(1, "k", 3, message(1, 1, 3, 1)))},
			"m: should not specify rate limit unit when unlimited"},
		{"twice", [][]byte{message(1, "m", 2, "a", 3, message(1, "k"), 3, message(1, "k"))},
			"m: duplicate descriptor composite key 'a.k'"},
		{"an empty name replaced", [][]byte{message(1, "m", 2, "a", 3, message(1, "k", 3, message(1, 1, 5, []byte{})))},
			"m: should not have an empty replaces entry"},
		{"no UTF-8", [][]byte{message(1, "m", 2, "\xff")}, "m: error loading config: a text is not valid UTF-8"},
		{"half a field", [][]byte{message(1, "m", 2, "a")[:5]},
			"m: error loading config: the message is not valid: unexpected EOF"},
		{"too deep", [][]byte{message(1, "m", 2, "a", 3, deep)},
			"m: descriptors are nested more than 64 levels deep: flatten them"},
		{"a long name above many", [][]byte{message(1, "m", 2, "a", 3, long)},
			"m: the names of descriptors and of those above them take more than 64 MiB: shorten or flatten them"},
		{"many levels above many", [][]byte{message(1, "m", 2, "a", 3, nested)},
			"m: the names of descriptors and of those above them take more than 64 MiB: shorten or flatten them"},
		{"too many", [][]byte{message(wide...)}, "resource 0: there are more than 100000 descriptors: use fewer"},
	} {
		if _, err := config.ParseMessages(x.messages, config.Options{}); err == nil || err.Error() != x.want {
			t.Errorf("%s: %v, want %s", x.what, err, x.want)
		}
	}
	if c, err := config.ParseMessages([][]byte{message(2, "a", 3, message(1, "k")), message(2, "a", 3, message(1, "l"))},
		config.Options{MergeDomains: true}); err != nil || c.Domains() != 1 {
		t.Error(c, err)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add(message(1, "m", 2, "a", 3, message(1, "k", 2, "v", 3, message(1, 1, 2, 3, 4, "n", 5, message(1, "o")), 4,
		message(1, "x"), 5, 1, 6, 1, 7, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := config.ParseMessages([][]byte{data, data}, config.Options{MergeDomains: true})
		if (c == nil) == (err == nil) {
			t.Error(c, err)
		}
		if c != nil && strings.Contains(strings.Join(c.Lines(), " "), "UNKNOWN requests") {
			t.Error("a limit without a unit")
		}
	})
}
