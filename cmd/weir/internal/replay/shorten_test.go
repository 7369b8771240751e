package replay

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

func TestShorten(t *testing.T) {
	long := func(mark string) limiter.Request {
		return limiter.Request{
			Path: "/images/" + strings.Repeat("a", 300) + mark + strings.Repeat("b", 300) + ".png",
			User: strings.Repeat("u", 70), IP: strings.Repeat("host.", 60) + mark,
		}
	}
	a, again, other := long("1"), long("1"), long("2")
	for _, r := range []*limiter.Request{&a, &again, &other} {
		if !shorten(r) {
			t.Fatal("nothing was shortened")
		}
		if n := len(r.Path) + len(r.User) + len(r.IP); n > limiter.MaxKeyBytes {
			t.Errorf("%d bytes are left", n)
		}
		if !strings.HasPrefix(r.Path, "/images/") || !strings.HasSuffix(r.Path, ".png") {
			t.Errorf("the ends are lost: %q", r.Path)
		}
	}
	if a.Path != again.Path || a.IP != again.IP {
		t.Error("equal requests became different")
	}
	if a.Path == other.Path || a.IP == other.IP {
		t.Error("different requests became equal")
	}
	short := limiter.Request{Path: "/towns", User: "ada", IP: "192.0.2.1"}
	if shorten(&short) || short.Path != "/towns" {
		t.Errorf("a short request became %+v", short)
	}
}
