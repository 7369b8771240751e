package address

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1":               "192.0.2.1",
		" 192.0.2.1\t":            "192.0.2.1",
		"192.0.2.1:8080":          "192.0.2.1",
		"2001:db8::1":             "2001:db8::1",
		"[2001:db8::1]":           "2001:db8::1",
		"[2001:db8::1]:443":       "2001:db8::1",
		"::ffff:192.0.2.1":        "192.0.2.1",
		"[::ffff:192.0.2.1]:80":   "192.0.2.1",
		"fe80::1%eth0":            "fe80::1",
		"[fe80::1%eth0]:80":       "fe80::1",
		"":                        "",
		"unknown":                 "",
		"_hidden":                 "",
		"192.0.2.1:":              "",
		"192.0.2.1:http":          "",
		"192.0.2.1:123456":        "",
		"192.0.2":                 "",
		"192.0.2.1 192.0.2.2":     "",
		"192.0.02.1":              "",
		"[192.0.2.1]":             "",
		"[2001:db8::1":            "",
		"[2001:db8::1]x":          "",
		"[2001:db8::1]:":          "",
		"2001:db8::1]:80":         "",
		"@":                       "",
		"[]":                      "",
		"192.0.2.1/24":            "",
		"\x00":                    "",
		strings.Repeat("1", 1000): "",
		"2001:db8::1:8080:9090::": "",
	} {
		a, ok := Parse(in)
		if ok != (want != "") || ok && a.String() != want {
			t.Errorf("%q: got %v, %v, want %q", in, a, ok, want)
		}
	}
}

// TestCounted: a customer has a network of IPv6, and one address of what a translator makes of IPv4.
func TestCounted(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.1":           "192.0.2.1/32",
		"2001:db8::1":         "2001:db8::/64",
		"::1":                 "::1/128",
		"64:ff9b::192.0.2.1":  "64:ff9b::c000:201/128",
		"64:ff9b:1::c000:201": "64:ff9b:1::/64", // its operator's own, which may be a network
	} {
		if got := Counted(netip.MustParseAddr(in), IPv6Bits).String(); got != want {
			t.Errorf("%s is counted as %s, want %s", in, got, want)
		}
	}
}
