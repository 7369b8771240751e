package front

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func networks(t testing.TB, list ...string) []netip.Prefix {
	t.Helper()
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	trusted, err := Trust(out)
	if err != nil {
		t.Fatal(err)
	}
	return trusted
}

// A spoofed X-Forwarded-For does not change whom a request is counted as: what
// a caller writes stands left of the address that the proxy saw.
func TestClient(t *testing.T) {
	trusted := networks(t, "10.0.0.0/8", "2001:db8:ffff::/48", "::ffff:172.16.0.0/108")
	for _, c := range []struct {
		name, remote string
		values       []string
		want         string
	}{
		{"no proxy", "203.0.113.9", nil, "203.0.113.9"},
		{"not through the proxy", "203.0.113.9", []string{"198.51.100.1"}, "203.0.113.9"},
		{"one proxy", "10.1.1.1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a proxy on IPv6", "2001:db8:ffff::1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a proxy's address inside IPv6", "::ffff:10.1.1.1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"a network given inside IPv6", "172.20.0.1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"spoofed", "10.1.1.1", []string{"1.2.3.4, 198.51.100.1"}, "198.51.100.1"},
		{"spoofed as a proxy", "10.1.1.1", []string{"10.9.9.9, 198.51.100.1"}, "198.51.100.1"},
		{"spoofed in a field of its own", "10.1.1.1", []string{"1.2.3.4", "198.51.100.1"}, "198.51.100.1"},
		{"spoofed with rubbish", "10.1.1.1", []string{`"` + "\x00,,,;for=", "198.51.100.1"}, "198.51.100.1"},
		{"two proxies", "10.1.1.1", []string{"198.51.100.1, 10.2.2.2"}, "198.51.100.1"},
		{"two proxies, two fields", "10.1.1.1", []string{"198.51.100.1", "10.2.2.2"}, "198.51.100.1"},
		{"nothing from the proxy", "10.1.1.1", nil, "10.1.1.1"},
		{"an empty field", "10.1.1.1", []string{""}, "10.1.1.1"},
		{"an internal caller", "10.1.1.1", []string{"10.2.2.2"}, "10.2.2.2"},
		{"unreadable next to the proxy", "10.1.1.1", []string{"198.51.100.1, unknown"}, "10.1.1.1"},
		{"unreadable behind two", "10.1.1.1", []string{"198.51.100.1, unknown, 10.2.2.2"}, "10.2.2.2"},
		{"with a port", "10.1.1.1", []string{"198.51.100.1:4711"}, "198.51.100.1"},
		{"IPv6 with a port", "10.1.1.1", []string{"[2001:db8::7]:4711"}, "2001:db8::7"},
		{"too many hops", "10.1.1.1", []string{"198.51.100.1" + strings.Repeat(", 10.2.2.2", maxHops)}, "10.2.2.2"},
	} {
		a := Addresses{Trusted: trusted}
		if got := a.Client(netip.MustParseAddr(c.remote), c.values).String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

// The chain of proxies is read from the right, where the nearest proxy wrote: however much
// a caller writes on the left, in one field or several, he is counted as one address.
func TestForwardedForIsReadFromTheRight(t *testing.T) {
	trusted := networks(t, "10.0.0.0/8")
	for _, c := range []struct {
		chain Chain
		wrap  func(string) string
	}{{ForwardedFor, func(s string) string { return s }}, {Forwarded, func(s string) string { return "for=" + s }}} {
		a := Addresses{Trusted: trusted, Chain: c.chain}
		for i := range 50 {
			lies := []string{fmt.Sprintf("198.51.100.%d", i), fmt.Sprintf("10.9.9.%d", i), "198.51.100.7:80"}
			for _, lie := range lies {
				for _, values := range [][]string{
					{c.wrap(lie) + ", " + c.wrap("203.0.113.9")},
					{c.wrap(lie), c.wrap("203.0.113.9")},
					{c.wrap(lie) + "," + c.wrap(lie) + "," + c.wrap("203.0.113.9") + ", " + c.wrap("10.2.2.2")},
					{c.wrap(lie) + ", " + c.wrap("203.0.113.9"), c.wrap("10.2.2.2") + ", " + c.wrap("10.3.3.3")},
				} {
					if got := a.Client(netip.MustParseAddr("10.1.1.1"), values).String(); got != "203.0.113.9" {
						t.Fatalf("%q is counted as %s, want 203.0.113.9", values, got)
					}
					// A caller that does not come from a proxy cannot set its address.
					if got := a.Client(netip.MustParseAddr("203.0.113.77"), values).String(); got != "203.0.113.77" {
						t.Fatalf("%q from elsewhere is counted as %s", values, got)
					}
				}
			}
		}
	}
}

func TestClientByOtherFields(t *testing.T) {
	trusted := networks(t, "10.0.0.0/8")
	for _, c := range []struct {
		name   string
		chain  Chain
		remote string
		values []string
		want   string
	}{
		{"forwarded", Forwarded, "10.1.1.1", []string{`for=198.51.100.1;proto=https;by=10.1.1.1`}, "198.51.100.1"},
		{"forwarded, IPv6", Forwarded, "10.1.1.1", []string{`For="[2001:db8::7]:4711"`}, "2001:db8::7"},
		{"forwarded, spoofed", Forwarded, "10.1.1.1", []string{`for=1.2.3.4, for=198.51.100.1`}, "198.51.100.1"},
		{"forwarded, spoofed in its own field", Forwarded, "10.1.1.1", []string{`for="1.2.3.4`, `for=198.51.100.1`},
			"198.51.100.1"},
		{"forwarded, an open quote swallows the proxy's word", Forwarded, "10.1.1.1",
			[]string{`for="1.2.3.4, for="[2001:db8::7]"`}, "10.1.1.1"},
		{"forwarded, two proxies", Forwarded, "10.1.1.1", []string{`for=198.51.100.1, for=10.2.2.2`}, "198.51.100.1"},
		{"forwarded, unknown", Forwarded, "10.1.1.1", []string{`for=unknown`}, "10.1.1.1"},
		{"forwarded, hidden", Forwarded, "10.1.1.1", []string{`for=_secret`}, "10.1.1.1"},
		{"forwarded, no for", Forwarded, "10.1.1.1", []string{`proto=http`}, "10.1.1.1"},
		{"forwarded, a stranger's", Forwarded, "203.0.113.9", []string{`for=198.51.100.1`}, "203.0.113.9"},
		{"single", Single, "10.1.1.1", []string{"198.51.100.1"}, "198.51.100.1"},
		{"single, a stranger's", Single, "203.0.113.9", []string{"198.51.100.1"}, "203.0.113.9"},
		{"single, twice", Single, "10.1.1.1", []string{"1.2.3.4", "198.51.100.1"}, "10.1.1.1"},
		{"single, a list", Single, "10.1.1.1", []string{"1.2.3.4, 198.51.100.1"}, "10.1.1.1"},
		{"single, none", Single, "10.1.1.1", nil, "10.1.1.1"},
	} {
		a := Addresses{Trusted: trusted, Chain: c.chain}
		if got := a.Client(netip.MustParseAddr(c.remote), c.values).String(); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	a := Addresses{}
	if got := a.Behind([]string{"1.2.3.4, 198.51.100.1"}).String(); got != "198.51.100.1" {
		t.Errorf("behind a socket: got %s", got)
	}
	if got := a.Behind(nil); got.IsValid() {
		t.Errorf("behind a socket, nothing said: got %s", got)
	}
}

func TestParseForwarded(t *testing.T) {
	for in, want := range map[string]string{
		`for=192.0.2.1`:                          "[192.0.2.1]",
		`FOR=192.0.2.1;by=203.0.113.43`:          "[192.0.2.1]",
		`by=203.0.113.43 ; for=192.0.2.1`:        "[192.0.2.1]",
		`for=192.0.2.43,for="[2001:db8::17]:47"`: "[192.0.2.43 [2001:db8::17]:47]",
		`for="a\"b,c;d=e"`:                       `[a"b,c;d=e]`,
		`proto=http, for=_x`:                     "[ _x]",
		`for=192.0.2.1:80`:                       "[192.0.2.1:80]",
		``:                                       "refused",
		`for`:                                    "refused",
		`for=`:                                   "refused",
		`for="`:                                  "refused",
		`for="\`:                                 "refused",
		`for="x`:                                 "refused",
		"for=\"a\\\nb\"":                         "refused",
		`for="x"y`:                               "refused",
		`for=a for=b`:                            "refused",
		`for=a;for=b`:                            "refused",
		`for=a,`:                                 "refused",
		`for=a,,for=b`:                           "refused",
		`for=a;`:                                 "refused",
		`=a`:                                     "refused",
		"for=\"a\nb\"":                           "refused",
		`for = a`:                                "refused",
		"for=a" + strings.Repeat(",for=a", 2*maxHops): "refused",
	} {
		list, ok := ParseForwarded(in)
		got := "refused"
		if ok {
			got = fmt.Sprint(list)
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		in   string
		bits int
		want string
	}{
		{"192.0.2.1", 0, "192.0.2.1"},
		{"::ffff:192.0.2.1", 0, "192.0.2.1"},
		{"2001:db8:1:2:3:4:5:6", 0, "2001:db8:1:2:3:4:5:6"},
		{"2001:db8:1:2:3:4:5:6", 64, "2001:db8:1:2:3:4:5:6"},
		{"2001:db8:1:2:ffff::", 0, "2001:db8:1:2:ffff::"},
		{"2001:db8:1:2:3:4:5:6", 48, "2001:db8:1::/48"},
		{"2001:db8:1:2:3:4:5:6", 128, "2001:db8:1:2:3:4:5:6/128"},
		{"fe80::1%eth0", 0, "fe80::1"},
		{"::1", 0, "::1"},
		{"::2", 0, "::2"},
		{"fe80::1%eth1", 128, "fe80::1/128"},
	} {
		a := Addresses{IPv6Bits: c.bits}
		if got := a.Text(netip.MustParseAddr(c.in)); got != c.want {
			t.Errorf("%s by %d bits: got %s, want %s", c.in, c.bits, got, c.want)
		}
	}
	if got := new(Addresses).Text(netip.Addr{}); got != "" {
		t.Errorf("no address: got %q", got)
	}
}

func TestTrust(t *testing.T) {
	if _, err := Trust([]netip.Prefix{{}}); err == nil {
		t.Error("an invalid network was taken")
	}
	if _, err := Trust([]netip.Prefix{netip.MustParsePrefix("::ffff:0:0/90")}); err == nil {
		t.Error("a network around all of IPv4 was taken")
	}
	got := fmt.Sprint(networks(t, "10.1.2.3/8", "::ffff:10.0.0.0/104", "2001:db8::5/32"))
	if want := "[10.0.0.0/8 10.0.0.0/8 2001:db8::/32]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// FuzzClient holds the walk against what it is for: unless the connection comes
// from a trusted proxy its own address counts, and whatever a caller writes to
// the left of what the proxy adds changes nothing.
func FuzzClient(f *testing.F) {
	f.Add("1.2.3.4, 10.0.0.1", uint8(0))
	f.Add(`for="[::1]:80", for=_x;by="a\"b"`, uint8(1))
	f.Add("[::ffff:10.0.0.1%a]:80", uint8(2))
	trusted := networks(f, "10.0.0.0/8")
	proxy, stranger := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("203.0.113.9")
	f.Fuzz(func(t *testing.T, value string, chain uint8) {
		a := Addresses{Trusted: trusted, Chain: Chain(chain % 3)}
		if got := a.Client(stranger, []string{value}); got != stranger {
			t.Fatalf("a stranger chose to be %v", got)
		}
		got := a.Client(proxy, []string{value})
		if !got.IsValid() || got.Zone() != "" || got.Is4In6() || a.Text(got) == "" {
			t.Fatalf("%q: %v", value, got)
		}
		switch a.Chain {
		case ForwardedFor:
			if got := a.Client(proxy, []string{value + ", 203.0.113.9"}); got != stranger {
				t.Fatalf("%q before the proxy's word: %v", value, got)
			}
			if got := a.Client(proxy, []string{value, "203.0.113.9"}); got != stranger {
				t.Fatalf("%q in a field before the proxy's: %v", value, got)
			}
		case Forwarded:
			if got := a.Client(proxy, []string{value, "for=203.0.113.9"}); got != stranger {
				t.Fatalf("%q in a field before the proxy's: %v", value, got)
			}
			// In one field an open quote may hide the proxy's part: then no part is
			// believed, and never the caller's.
			if got := a.Client(proxy, []string{value + ", for=203.0.113.9"}); got != stranger && got != proxy {
				t.Fatalf("%q before the proxy's word: %v", value, got)
			}
		}
	})
}

// FuzzParseForwarded holds the parser against a writer: what is written back
// reads as the same.
func FuzzParseForwarded(f *testing.F) {
	f.Add(`for=192.0.2.43, for="[2001:db8::17]:47";by=x;proto=http`)
	f.Add(`for="\"", by=_`)
	f.Fuzz(func(t *testing.T, value string) {
		list, ok := ParseForwarded(value)
		if !ok {
			return
		}
		var b strings.Builder
		for i, hop := range list {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(`for="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(hop) + `"`)
		}
		if again, ok := ParseForwarded(b.String()); !ok || fmt.Sprint(again) != fmt.Sprint(list) {
			t.Fatalf("%q reads as %q, written %q reads as %q, %v", value, list, b.String(), again, ok)
		}
	})
}
