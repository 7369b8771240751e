package cluster_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// The owner of a counter has the windows of the zone that the request names to another
// member. The default zone counts for a name that no member knows.
func TestZonesOfRequestsAcrossMembers(t *testing.T) {
	noon := time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)
	nodes := threeAt(t, `version: 1
rules: [{name: own, key: [user], limits: [{limit: 6, calendar: day, zone: {from: "attr:tz", default: Europe/Berlin}}]}]
`, func() time.Time { return noon })
	owners := map[string]bool{}
	for zone, wait := range map[string]time.Duration{"Asia/Tokyo": 3 * time.Hour, "America/Lima": 17 * time.Hour,
		"": 11 * time.Hour, "No/Where": 11 * time.Hour} {
		for u := range 10 {
			r := weir.Request{User: fmt.Sprint(zone, u), Attributes: map[string]string{"tz": zone}}
			for i := range 9 {
				d := check(t, nodes[i%3], r)
				owners[d.Limit(0).Owner] = true
				if d.Allowed != (i < 6) || !d.Allowed && d.RetryAfter != wait {
					t.Errorf("%q, check %d: allowed %v, wait %v (%v)", zone, i, d.Allowed, d.RetryAfter, d.Source)
				}
			}
		}
	}
	if len(owners) != 3 {
		t.Errorf("owners %v", owners)
	}
}
