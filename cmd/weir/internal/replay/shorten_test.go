package replay

import (
	"strings"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

func TestShorten(t *testing.T) {
	long := func(mark string) limiter.Request {
		return limiter.Request{
			Path: "/images/" + strings.Repeat("a", 9000) + mark + strings.Repeat("b", 9000) + ".png",
			User: strings.Repeat("u", 9000), IP: strings.Repeat("host.", 60) + mark,
		}
	}
	a, again, other := long("1"), long("1"), long("2")
	for _, r := range []*limiter.Request{&a, &again, &other} {
		if !shorten(r) {
			t.Fatal("nothing was shortened")
		}
		if err := r.CheckSize(); err != nil {
			t.Error(err)
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
