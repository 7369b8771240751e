package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir/internal/denials"
)

// Each key that was refused has its rule, its limit and when, and a command that explains it.
func TestTopExplainsEachRefusal(t *testing.T) {
	at := time.Date(2026, 1, 2, 10, 32, 7, 0, time.UTC)
	key := func(user, tenant string) denials.Key {
		return denials.Key{Key: user, Rule: "login", Limit: "minute", Tenant: tenant, Count: 4, Last: at,
			Samples: []denials.Taken{{Time: at, Sample: denials.Sample{User: user, Path: "/login", Method: "POST"}}}}
	}
	got := new(app).refusedText([]denials.Key{key("ada", ""), key("o'hara $(x)", "bank"), {Key: "nameless", Last: at}})
	for _, want := range []string{"login/minute", "10:32:07",
		"\n  weir check /login --user ada --method POST --cost 0 --explain --server http://HOST:PORT\n",
		"\n  weir check /login --user 'o'\\''hara $(x)' --method POST --tenant bank --cost 0 --explain "} {
		if !strings.Contains(got, want) {
			t.Errorf("without %q:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "weir check"); n != 2 {
		t.Errorf("%d commands:\n%s", n, got)
	}
}
