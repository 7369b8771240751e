package cli

import (
	"strings"
	"testing"
	"time"
)

func TestPermissionsCheck(t *testing.T) {
	good := file(t, "permissions.yaml", "anonymous: {may: {check: true}, budget: {checks: 10}}\n")
	bad := file(t, "permissions.yaml", "anonymous: {may: {chek: true}, budget: {checks: -1}}\n")
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"valid":     {[]string{"check", good}, 0, "is valid"},
		"not valid": {[]string{"check", bad}, 1, "2 problems"},
		"position":  {[]string{"check", bad}, 1, bad + ":1:19: "},
		"none":      {[]string{"check"}, 2, "one permissions file"},
		"no file":   {[]string{"check", good + "x"}, 1, "cannot be opened"},
		"a typo":    {[]string{"chek", good}, 2, `did you mean "check"?`},
		"alone":     {nil, 0, "Say what is wrong with"},
	} {
		got := person{now: time.Now()}.run(t, append([]string{"permissions"}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.out+got.err, c.want) {
			t.Errorf("%s: %+v, want %d with %q", name, got, c.status, c.want)
		}
	}
}
