package arith

import (
	"encoding/binary"
	"math/bits"
)

// The keys of a tenant carry its label, so that a table knows whose counter each of its entries is,
// also after it came from another node. The low half of their hash has in its lowest 32 bits the label
// and a check of it. The other 96 bits are of the key. A key without a tenant has its hash as it is, and
// so one in 65536 of them looks like one of some tenant: shares of a table can bear that.

// OwnTenants is what the name of a tenant begins with whose counters a node keeps for itself. No list of top keys shows
// them.
const OwnTenants = "\x00"

// TenantLabel returns the label of a tenant: a number of 16 bits by which its share of a table is
// kept, and 0 for none. Tenants with the same label have one share. Nothing in it is secret.
func TenantLabel(tenant string) uint16 {
	if tenant == "" {
		return 0
	}
	h, rest := uint64(len(tenant)), tenant
	for len(rest) >= 8 {
		h = mixed(h ^ eight(rest))
		rest = rest[8:]
	}
	var last [8]byte
	copy(last[:], rest)
	h = mixed(h ^ binary.LittleEndian.Uint64(last[:]))
	return max(uint16(h>>48), 1)
}

func eight(s string) uint64 {
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// mixed spreads each bit of x over all bits.
func mixed(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0xa0761d6478bd642f, 0xe7037ed1a0b428db)
	return (hi ^ lo) * 0x9e3779b97f4a7c15
}

// checked returns the check of a label.
func checked(label uint16) uint16 { return uint16(uint32(label)*0x9e3779b1>>16) ^ 0x5a17 }

// OfTenant returns the hash of a key of a tenant, from one that the tenant is a part of.
func (h Hash) OfTenant(tenant string) Hash {
	label := TenantLabel(tenant)
	h.Lo = h.Lo&^(1<<32-1) | uint64(checked(label))<<16 | uint64(label)
	return h
}

// Tenant returns the label of the tenant of a key; 0 if it has none.
func (h Hash) Tenant() uint16 { return LabelOf(h.Lo) }

// LabelOf is [Hash.Tenant] for the low half of a hash.
func LabelOf(lo uint64) uint16 {
	if label := uint16(lo); checked(label) == uint16(lo>>16) {
		return label
	}
	return 0
}
