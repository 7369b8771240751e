package cluster

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A member that is insecure on purpose logs that at the start, and once a minute until
// it ends.
func TestAdmonish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		m := &member{log: slog.New(slog.NewTextHandler(&said, nil)), sched: &scheduler{opened: time.Now()}}
		lacks := &InsecureError{Setting: "PeerAddr", Addr: ":7947", Lacks: []string{"there is no secret"}}
		p := &protection{member: m, lacks: lacks}
		p.warnInsecure()
		time.Sleep(3*time.Minute + time.Second)
		synctest.Wait()
		m.sched.close()
		time.Sleep(3 * time.Minute)
		if n := strings.Count(said.String(), `because="PeerAddr :7947" lacks="[there is no secret]"`); n != 4 {
			t.Errorf("said %d times in 3 minutes, and 3 after its end:\n%s", n, &said)
		}
	})
}
