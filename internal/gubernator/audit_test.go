package gubernator

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/transport"
)

// The audit line for an unidentified caller over HTTP has the reason and the protocol.
func TestAuditOfStrangersOverHTTP(t *testing.T) {
	var told events
	f := newFixture(t, func(o *Options) { o.Config.Access, o.Config.Audit = strangers{}, &told })
	node, err := weir.Open(t.Context(), weir.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server, err := transport.NewServer(transport.Options{Decider: node, Access: strangers{}, Audit: &told,
		Services: []transport.GRPCService{f.service}, Routes: f.service.Routes()})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	server.Handler().ServeHTTP(w, httptest.NewRequest("POST", "/v1/GetRateLimits", strings.NewReader(`{"requests":[]}`)))
	if w.Code != 401 || len(told) != 1 {
		t.Fatalf("%d, %+v", w.Code, told)
	}
	if e := told[0]; e.Over != "gubernator" || e.Outcome != transport.AuditRefused || e.Action != "check" ||
		!strings.Contains(e.Why, "show a token") {
		t.Errorf("%+v", e)
	}
}
