package transport

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// vanished is a client that is gone when its answer is written.
type vanished struct{ http.ResponseWriter }

func (vanished) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestACallStandsWhoseClientIsGone: the audit has what a call has done, or why it failed, and not that its answer was
// lost.
func TestACallStandsWhoseClientIsGone(t *testing.T) {
	for _, fails := range []error{nil, limiter.ErrInvalid} {
		w := &statusWriter{ResponseWriter: vanished{httptest.NewRecorder()}}
		r := httptest.NewRequest(http.MethodPost, weirv1.Administration_SetOverride_FullMethodName,
			strings.NewReader("\x00\x00\x00\x00\x00"))
		r.ProtoMajor = 2
		r.Header.Set("Content-Type", callType)
		serveCall(w, r, AdminRoute{call: func(_ []byte, by *AdminCaller) (proto.Message, error) {
			by.Subject("rule api", "deny")
			return &weirv1.OverridesResponse{}, fails
		}}, &AdminCaller{w: w})
		status, why, code := http.StatusOK, "", "0"
		if fails != nil {
			status, why, code = http.StatusBadRequest, fails.Error(), "3"
		}
		if got := w.Header().Get(callStatus); w.status != status || w.why != why || w.did != "deny" || got != code {
			t.Errorf("%v: the audit has %d %q %q, and the client status %s, want %d %q and %s", fails, w.status, w.why,
				w.did, got, status, why, code)
		}
	}
}
