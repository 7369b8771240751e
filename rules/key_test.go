package rules

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// slowHash is what hash promises, without its care for speed.
func slowHash(k *key, r *limiter.Request) (arith.Hash, outcome) {
	var buf []byte
	for i := range k.parts {
		v, missing := "", false
		var header uint16
		switch p := k.parts[i]; p.kind {
		case partPath:
			v, missing = r.Path, r.Path == ""
		case partUser:
			v, missing = r.User, r.User == ""
			if missing {
				v, header = r.IP, standInBit
			}
		case partIP:
			v, missing = r.IP, r.IP == ""
		case partGroup:
			if v = r.Group; v == "" {
				v = DefaultGroup
			}
		case partMethod:
			v, missing = strings.ToUpper(r.Method), r.Method == ""
		case partAttribute:
			v, missing = r.Attributes[p.name], r.Attributes[p.name] == ""
		}
		if missing && k.skip {
			return arith.Hash{}, keySkipped
		}
		buf = binary.LittleEndian.AppendUint16(buf, header|uint16(len(v)))
		buf = append(buf, v...)
	}
	hi, lo := siphash.Hash128(k.k0, k.k1, buf)
	return arith.Hash{Hi: hi, Lo: lo}, keyHashed
}

// No spelling of values makes two requests share a counter: each value is hashed after
// its length, and a substitute is marked.
func TestKeysAreLengthPrefixed(t *testing.T) {
	values := []string{"", "a", "b", "ab", "ba", "a\x00", "\x00a", "\x00", "\x01\x00a", "a\x01\x00b", "ab\x00\x00", ":",
		"a:", ":a", "a:b", "/", "%3A", strings.Repeat("a", 60), strings.Repeat("a", 61)}
	for name, c := range map[string]struct {
		parts   []part
		request func(x, y, z string) *limiter.Request
	}{
		"path, user": {[]part{{kind: partPath}, {kind: partUser}}, func(x, y, _ string) *limiter.Request {
			return &limiter.Request{Path: x, User: y + "u"}
		}},
		"user, or ip in its place": {[]part{{kind: partUser}}, func(x, y, _ string) *limiter.Request {
			if x == "" {
				return &limiter.Request{IP: y}
			}
			return &limiter.Request{User: y}
		}},
		"path, group, attribute": {[]part{{kind: partPath}, {kind: partGroup}, {kind: partAttribute, name: "plan"}},
			func(x, y, z string) *limiter.Request {
				return &limiter.Request{Path: x, Group: y + "g", Attributes: map[string]string{"plan": z}}
			}},
		"attributes": {[]part{{kind: partAttribute, name: "a"}, {kind: partAttribute, name: "b"}, {kind: partIP}},
			func(x, y, z string) *limiter.Request {
				return &limiter.Request{Attributes: map[string]string{"a": x, "b": y}, IP: z}
			}},
	} {
		k := newKey(&Options{ClusterName: "c"}, "r", c.parts, false)
		seen := map[arith.Hash]string{}
		for _, x := range values {
			for _, y := range values {
				for _, z := range values {
					r := c.request(x, y, z)
					id := fmt.Sprintf("%q %q %q %q %q", r.Path, r.User, r.IP, r.Group, r.Attributes)
					h, o := k.hash(r)
					if o != keyHashed {
						t.Fatalf("%s: %s has outcome %d", name, id, o)
					}
					if other, ok := seen[h]; ok && other != id {
						t.Fatalf("%s: %s and %s share a counter", name, id, other)
					}
					seen[h] = id
				}
			}
		}
	}
	// Likewise what the hash itself is keyed by: the cluster, the rule and the parts.
	keyed := map[[2]uint64]string{}
	zeros := strings.Repeat("\x00", 8)
	for _, cluster := range []string{"a", "ab", "abc", "a" + zeros + "b"} {
		for _, rule := range []string{"c", "bc", "b", "user", "path", "b" + zeros + "c"} {
			for _, parts := range [][]part{
				{{kind: partUser}}, {{kind: partPath}}, {{kind: partPath}, {kind: partUser}}, {{kind: partUser}, {kind: partPath}},
				{{kind: partAttribute, name: "user"}}, {{kind: partAttribute, name: "a"}, {kind: partAttribute, name: "b"}},
				{{kind: partAttribute, name: "aattr:b"}},
			} {
				k := newKey(&Options{ClusterName: cluster}, rule, parts, false)
				id := fmt.Sprint(cluster, " ", rule, " ", parts)
				if other, ok := keyed[[2]uint64{k.k0, k.k1}]; ok {
					t.Fatalf("%s and %s have one hash", id, other)
				}
				keyed[[2]uint64{k.k0, k.k1}] = id
			}
		}
	}
}

// Keys of every length, around the end of the short buffer, of what is shown as it is, and of a string.
func TestHashOfEveryLength(t *testing.T) {
	o := Options{ClusterName: "c"}
	for _, parts := range [][]part{
		{{kind: partPath}},
		{{kind: partPath}, {kind: partUser}},
		{{kind: partRule}, {kind: partPath}, {kind: partIP}, {kind: partMethod}, {kind: partGroup}},
		{{kind: partAttribute, name: "a"}, {kind: partPath}},
	} {
		k := newKey(&o, "r", parts, false)
		seen := make(map[arith.Hash]int)
		for n := range limiter.MaxFieldBytes + 1 {
			if n > limiter.MaxKeyBytes+10 && n < limiter.MaxFieldBytes-10 {
				continue
			}
			r := limiter.Request{Path: strings.Repeat("p", n)}
			got, o := k.hash(&r)
			if want, wantO := slowHash(&k, &r); got != want || o != wantO {
				t.Fatalf("%v with a path of %d bytes: %v, %v; want %v, %v", &k, n, got, o, want, wantO)
			}
			if m, ok := seen[got]; ok {
				t.Fatalf("paths of %d and %d bytes share a counter", m, n)
			}
			seen[got] = n
		}
	}
}

func TestHashOfRandomRequests(t *testing.T) {
	rnd := rand.New(rand.NewPCG(17, 18))
	text := func() string {
		if rnd.IntN(4) == 0 {
			return ""
		}
		return strings.Repeat(string(rune('a'+rnd.IntN(3))), rnd.IntN(90))
	}
	all := []part{{kind: partPath}, {kind: partRule}, {kind: partUser}, {kind: partIP}, {kind: partGroup},
		{kind: partMethod},
		{kind: partAttribute, name: "x"}, {kind: partAttribute, name: "y"}}
	outcomes := make(map[outcome]int)
	for i := range 3000 {
		rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		k := newKey(&Options{}, fmt.Sprint("r", i), append([]part(nil), all[:1+rnd.IntN(len(all))]...), rnd.IntN(2) == 0)
		r := limiter.Request{Path: text(), User: text(), IP: text(), Group: text(), Method: text(),
			Attributes: map[string]string{"x": text(), "y": text()}}
		got, o := k.hash(&r)
		want, wantO := slowHash(&k, &r)
		if got != want || o != wantO {
			t.Fatalf("%v of %+v: %v, %v; want %v, %v", &k, r, got, o, want, wantO)
		}
		outcomes[o]++
	}
	for _, o := range []outcome{keyHashed, keySkipped} {
		if outcomes[o] < 20 {
			t.Errorf("outcome %d was met %d times only", o, outcomes[o])
		}
	}
}

// The hash is SipHash-2-4 of 128 bits: the first vectors of its authors. Were
// the library to change it, all counters would start afresh.
func TestSipHashVectors(t *testing.T) {
	k0, k1 := uint64(0x0706050403020100), uint64(0x0f0e0d0c0b0a0908)
	for n, want := range []string{
		"a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45", "8177228da4a45dc7fca38bdef60affe4",
	} {
		data := []byte{0, 1, 2}[:n]
		hi, lo := siphash.Hash128(k0, k1, data)
		got := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, hi), lo)
		if fmt.Sprintf("%x", got) != want {
			t.Errorf("%d bytes: %x, want %s", n, got, want)
		}
	}
}

// The secret of a key's hash depends on each thing that it should, and on how
// they are divided.
func TestKeySecrets(t *testing.T) {
	type input struct {
		secret, cluster, rule string
		parts                 []part
	}
	user, attribute := part{kind: partUser}, part{kind: partAttribute, name: "user"}
	seen := make(map[[2]uint64]input)
	for _, in := range []input{
		{"", "c", "r", []part{user}}, {"s", "c", "r", []part{user}}, {"", "cr", "", []part{user}},
		{"", "", "cr", []part{user}}, {"", "c", "rattr:user", nil},
		{"", "c", "r", []part{attribute}}, {"", "c", "r", []part{user, attribute}}, {"", "c", "r", []part{attribute, user}},
		{"", "c", "r", nil},
	} {
		k := newKey(&Options{Secret: []byte(in.secret), ClusterName: in.cluster}, in.rule, in.parts, false)
		if twin, ok := seen[[2]uint64{k.k0, k.k1}]; ok {
			t.Errorf("%+v has the secret of %+v", in, twin)
		}
		seen[[2]uint64{k.k0, k.k1}] = in
		if skip := newKey(&Options{Secret: []byte(in.secret), ClusterName: in.cluster}, in.rule, in.parts,
			true); skip.k0 != k.k0 || skip.k1 != k.k1 {
			t.Errorf("%+v: a counter is another one if it is skipped for others", in)
		}
	}
}

func TestEqualUpper(t *testing.T) {
	for _, test := range []struct {
		w, s string
		want bool
	}{
		{"GET", "GET", true}, {"GET", "get", true}, {"GET", "gEt", true}, {"GET", "GETS", false}, {"GET", "PUT", false},
		{"", "", true},
		{"É", "é", false}, {"É", "É", true}, {"K", "\u212a", false}, {"A_", "a_", true}, {"@[", "`{", false},
	} {
		if got := equalUpper(test.w, test.s); got != test.want {
			t.Errorf("%s and %s: %t", test.w, test.s, got)
		}
		if test.want && upper(test.s) != test.w {
			t.Errorf("%s in upper case is %s, want %s", test.s, upper(test.s), test.w)
		}
	}
}

// TestEscapedIsText: a name is UTF-8 whatever a request sends, and clients decode it. It
// has no control characters, which terminals may obey.
func TestEscapedIsText(t *testing.T) {
	for value, want := range map[string]string{
		"\xff":           "%FF",
		"caf\xe9":        "caf%E9",
		"caf\u00e9":      "caf\u00e9",
		"\u009b31m":      "%C2%9B31m",
		"\xed\xa0\x80":   "%ED%A0%80",
		"\ufffd":         "\ufffd",
		"\U0001f511\xf0": "\U0001f511%F0",
		"a\u202eb":       "a%E2%80%AEb", // the rest would be read from right to left
		"a\u200bb":       "a%E2%80%8Bb", // a space without width
		"a\u2028b":       "a%E2%80%A8b", // a new line
	} {
		if got := string(appendEscaped(nil, value)); got != want {
			t.Errorf("%q becomes %q, want %q", value, got, want)
		}
	}
}

// Different values never yield the same escaped text, and no escaped text has a
// character that means something in a name, a control character or a byte that is not
// UTF-8.
func FuzzAppendEscaped(f *testing.F) {
	f.Add("a:b", "a%3Ab")
	f.Add("{x}", "\x00")
	f.Add("\xff", "\u0085")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := string(appendEscaped(nil, a)), string(appendEscaped(nil, b))
		if (a == b) != (x == y) {
			t.Fatalf("%q and %q become %q and %q", a, b, x, y)
		}
		if i := strings.IndexFunc(x, func(r rune) bool {
			return unicode.IsControl(r) || strings.ContainsRune(":{}", r)
		}); i >= 0 || !utf8.ValidString(x) {
			t.Fatalf("%q becomes %q", a, x)
		}
	})
}
