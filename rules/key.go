package rules

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/dchest/siphash"

	"github.com/weirlimit/weir/internal/yamltree"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// partKind is the source of one part of a key.
type partKind uint8

const (
	partPath partKind = iota
	partRule
	partUser
	partIP
	partGroup
	partMethod
	partAttribute
)

const attributePrefix = "attr:"

type part struct {
	kind partKind
	fold folding // which spellings count together
	name string  // of the attribute
}

// partNames returns the names of the parts without a further name, indexed by kind.
func partNames() []string { return []string{"path", "rule", "user", "ip", "group", "method"} }

// String returns the part in the spelling of a rules file.
func (p part) String() string {
	if p.fold != 0 {
		return "{" + p.plainName() + ": {" + p.fold.String() + "}}"
	}
	return p.plainName()
}

// plainName returns the part without its spelling.
func (p part) plainName() string {
	if p.kind == partAttribute {
		return attributePrefix + p.name
	}
	return partNames()[p.kind]
}

// value returns the request's value for the part, as it is spelled for the key. The client's address replaces
// a missing user.
func (p *part) value(r *limiter.Request) string {
	switch p.kind {
	case partPath:
		return p.fold.of(r.Path)
	case partUser:
		if v := p.fold.of(r.User); v != "" {
			return v
		}
		return countedIP(r.IP)
	case partIP:
		return countedIP(r.IP)
	case partGroup:
		return p.fold.of(groupOf(r))
	case partMethod:
		return r.Method
	case partAttribute:
		return p.fold.of(r.Attributes[p.name])
	}
	return "" // partRule: the rule is in the key of the hash
}

func (p *part) missing(r *limiter.Request) bool {
	switch p.kind {
	case partRule:
		return false
	case partUser:
		return p.fold.of(r.User) == ""
	case partIP:
		return r.IP == ""
	}
	v := p.value(r)
	return v == ""
}

// key is one counter of a rule: its parts, and the secret key of its hash.
type key struct {
	parts  []part
	k0, k1 uint64
	skip   bool // a request that lacks a part is not counted by this key
	plain  bool // the parts are paths, rules and users, and skip is not set
}

// newKey derives the key of the hash from the cluster, the rule and the parts. So it is
// the same in every process with the same options, and other changes of the file do not
// affect it.
func newKey(o *Options, rule string, parts []part, skip bool) key {
	mac := hmac.New(sha256.New, o.Secret)
	write := func(s string) {
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], uint64(len(s)))
		mac.Write(n[:])
		mac.Write([]byte(s))
	}
	write("weir key 1")
	write(o.ClusterName)
	write(rule)
	for _, p := range parts {
		write(p.String())
	}
	sum := mac.Sum(nil)
	return key{
		parts: parts, skip: skip, plain: !skip && !slices.ContainsFunc(parts, func(p part) bool {
			return p.kind > partUser || p.fold != 0
		}),
		k0: binary.LittleEndian.Uint64(sum), k1: binary.LittleEndian.Uint64(sum[8:]),
	}
}

// headerBytes precede each value in the hash input: its length, and in the top bit
// whether it replaces a missing value. So an anonymous caller at address X and a user
// named X have different counters, and no value can imitate two.
const headerBytes = 2

const standInBit = 1 << 15

// outcome is the result of hashing a key.
type outcome uint8

const (
	keyHashed outcome = iota
	keySkipped
	keyLong // it does not fit the buffer
)

// shortKey is enough bytes for most keys. The stack is cleared before use, so a buffer
// for the longest key would cost as much as finding the rule.
const shortKey = 96

// hash returns the identity of the request's counter, or that the key is skipped. It keeps nothing,
// and allocates only for values of more than [limiter.MaxKeyBytes].
func (k *key) hash(r *limiter.Request) (arith.Hash, outcome) {
	var buf [shortKey]byte
	var (
		n int
		o outcome
	)
	if k.plain && r.User != "" {
		n, o = k.encodePlain(r, &buf)
	} else {
		n, o = k.encode(r, buf[:])
	}
	switch o {
	case keyLong:
		return k.hashLong(r)
	case keySkipped:
		return arith.Hash{}, o
	}
	return k.sum(r, buf[:n]), o
}

// sum returns the hash of what identifies a counter.
func (k *key) sum(r *limiter.Request, text []byte) arith.Hash {
	hi, lo := siphash.Hash128(k.k0, k.k1, text)
	if r.Tenant == "" {
		return arith.Hash{Hi: hi, Lo: lo}
	}
	return arith.Hash{Hi: hi, Lo: lo}.OfTenant(r.Tenant)
}

func (k *key) hashLong(r *limiter.Request) (arith.Hash, outcome) {
	const more = (maxKeyParts+1)*headerBytes + limiter.MaxTenantBytes
	var room [more + limiter.MaxKeyBytes]byte
	buf := room[:]
	n, o := k.encode(r, buf)
	if o == keyLong {
		buf = make([]byte, more+k.bytes(r))
		n, o = k.encode(r, buf)
	}
	if o != keyHashed {
		return arith.Hash{}, o
	}
	return k.sum(r, buf[:n]), o
}

// encode writes what identifies the counter among those of its rule.
func (k *key) encode(r *limiter.Request, buf []byte) (n int, o outcome) {
	for i := range k.parts {
		p := &k.parts[i]
		if k.skip && p.missing(r) {
			return 0, keySkipped
		}
		v := r.Path
		switch { // without a call for what most keys have
		case p.fold != 0 && !(p.kind == partUser && p.missing(r)):
			v = p.value(r)
		case p.kind == partPath:
		case p.kind == partUser && p.fold == 0 && r.User != "":
			v = r.User
		case p.kind == partUser || p.kind == partIP:
			if n = encodeIP(r.IP, buf, n, p.kind == partUser); n < 0 {
				return 0, keyLong
			}
			continue
		default:
			v = p.value(r)
		}
		if n+headerBytes+len(v) > len(buf) {
			return 0, keyLong
		}
		binary.LittleEndian.PutUint16(buf[n:], uint16(len(v)))
		n += headerBytes
		end := n + copy(buf[n:], v)
		if p.kind == partMethod {
			for j := n; j < end; j++ {
				buf[j] = upperByte(buf[j])
			}
		}
		n = end
	}
	if r.Tenant != "" {
		return appendTenant(r.Tenant, buf, n)
	}
	return n, keyHashed
}

// encodeIP writes an address after the first n bytes, without a copy of it. It returns the length
// then, -1 if it does not fit.
func encodeIP(ip string, buf []byte, n int, standIn bool) int {
	at := n + headerBytes
	if at > len(buf) {
		return -1
	}
	size := len(appendIP(buf[at:at], ip))
	if at+size > len(buf) { // then it was appended elsewhere
		return -1
	}
	header := uint16(size)
	if standIn {
		header |= standInBit
	}
	binary.LittleEndian.PutUint16(buf[n:], header)
	return at + size
}

// encodePlain is encode for a plain key of a request with a user, which most are: it takes half as long.
func (k *key) encodePlain(r *limiter.Request, buf *[shortKey]byte) (n int, o outcome) {
	for i := range k.parts {
		v := ""
		switch k.parts[i].kind {
		case partPath:
			v = r.Path
		case partUser:
			v = r.User
		}
		if n, o = appendPart(buf, n, uint16(len(v)), v); o != keyHashed {
			return 0, o
		}
	}
	if r.Tenant == "" {
		return n, keyHashed
	}
	return appendPart(buf, n, tenantHeader, r.Tenant)
}

// appendPart writes a header and a value after the first n bytes.
func appendPart(buf *[shortKey]byte, n int, header uint16, v string) (int, outcome) {
	if n < 0 || n > shortKey-headerBytes || len(v) > shortKey-headerBytes-n {
		return 0, keyLong
	}
	binary.LittleEndian.PutUint16(buf[n:], header)
	return n + headerBytes + copy(buf[n+headerBytes:], v), keyHashed
}

// tenantHeader precedes the tenant, after all parts. A key has a fixed number of parts, so
// nothing else can stand there, and a key without a tenant has the hash that it had before
// there were tenants.
const tenantHeader = 0xfffe

// appendTenant writes the tenant after the n bytes of the parts.
func appendTenant(tenant string, buf []byte, n int) (int, outcome) {
	if n+headerBytes+len(tenant) > len(buf) {
		return 0, keyLong
	}
	binary.LittleEndian.PutUint16(buf[n:], tenantHeader)
	return n + headerBytes + copy(buf[n+headerBytes:], tenant), keyHashed
}

// bytes returns the total length of the values of a request's key.
func (k *key) bytes(r *limiter.Request) (n int) {
	for i := range k.parts {
		v := k.parts[i].value(r)
		n += len(v)
	}
	return n
}

// String returns the key in the spelling of a rules file.
func (k *key) String() string {
	names := make([]string, len(k.parts))
	for i, p := range k.parts {
		names[i] = p.String()
	}
	return "[" + strings.Join(names, ", ") + "]"
}

// keying is a decoder of keys.
type keying struct{ *decoder }

func (d keying) key(n *node) ([][]part, bool) {
	parts := d.parts(n, "key")
	if parts == nil {
		return nil, false
	}
	return [][]part{parts}, false
}

// keys decodes the parts of several counters.
func (d keying) keys(n *node) (out [][]part, skip bool) {
	const form = `"keys" is a list of lists, such as [[ip], [user]]`
	if n.Kind != yamltree.List || len(n.Items) == 0 {
		d.add(n, form+`; for one key of several parts write "key"`)
		return nil, false
	}
	for _, item := range d.list(n, "keys", maxKeys) {
		if item.Kind != yamltree.List {
			d.add(item, form+"; this element is %s", item.Kind)
			continue
		}
		parts := d.parts(item, "a key")
		if slices.ContainsFunc(out, func(o []part) bool { return slices.Equal(o, parts) }) {
			d.add(item, "this key is in the list already")
			continue
		}
		if parts != nil {
			out = append(out, parts)
		}
	}
	return out, true
}

func (d keying) parts(n *node, what string) []part {
	var out []part
	if n.Kind == yamltree.List && len(n.Items) == 0 {
		d.add(n, "%s is empty; to count all requests together write [rule]", what)
	}
	for _, item := range d.list(n, what, maxKeyParts) {
		p, bad := part{}, ""
		if item.Kind == yamltree.Mapping && len(item.Keys) > 0 && item.Keys[0].Text != "attr" {
			var ok bool
			if p, ok = d.foldedPart(item); !ok {
				continue
			}
		} else {
			p, bad = readPart(item)
		}
		if bad == "" && slices.ContainsFunc(out, func(o part) bool { return o.kind == p.kind && o.name == p.name }) {
			bad = quote(p.plainName()) + " is in the key already"
		}
		if bad != "" {
			d.add(item, "%s", bad)
			continue
		}
		out = append(out, p)
	}
	return out
}

func readPart(n *node) (part, string) {
	known := append(partNames(), attributePrefix+"NAME")
	if n.Kind == yamltree.Mapping && len(n.Keys) == 1 && n.Keys[0].Text == "attr" {
		return part{}, "write attr:NAME without a blank after the colon"
	}
	if n.Kind != yamltree.Scalar {
		return part{}, "a part of a key is one of " + strings.Join(known, ", ") + "; this is " + n.Kind.String()
	}
	return namedPart(n.Text)
}

// namedPart returns the part that a text names, or what is wrong with it.
func namedPart(text string) (part, string) {
	if name, ok := strings.CutPrefix(text, attributePrefix); ok {
		switch {
		case name == "":
			return part{}, "attr: lacks the name of an attribute, as in attr:plan"
		case len(name) > limiter.MaxNameBytes:
			return part{}, "the attribute's name is too long"
		case strings.TrimSpace(name) != name:
			return part{}, "write " + attributePrefix + strings.TrimSpace(name) + " without a blank: " + quote(name) +
				" is another attribute"
		}
		return part{kind: partAttribute, name: name}, ""
	}
	if i := slices.Index(partNames(), text); i >= 0 {
		return part{kind: partKind(i)}, ""
	}
	for _, other := range []string{"attribute:", "attribute.", "attributes:", "attributes.", "attr.", "header:",
		"header."} {
		if name, ok := strings.CutPrefix(text, other); ok && name != "" {
			return part{}, "unknown part of a key " + quote(text) + "; an attribute is written as \"" +
				attributePrefix + clip(name) + "\""
		}
	}
	return part{}, unknown("part of a key", text, append(partNames(), attributePrefix+"NAME"))
}
