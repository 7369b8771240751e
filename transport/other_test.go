package transport_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/weirlimit/weir/transport"
)

// nothing is a service without methods.
type nothing struct{}

func (nothing) ServiceDesc() (*grpc.ServiceDesc, any) {
	return &grpc.ServiceDesc{ServiceName: "test.Nothing", HandlerType: (*any)(nil)}, nothing{}
}

// A service of another protocol has its routes over HTTP and no others. What it is posted is
// bounded, and takes room only until it has answered.
func TestRoutesOfServices(t *testing.T) {
	s := newServer(t, "", func(o *transport.Options) {
		o.Services = []transport.GRPCService{nothing{}}
		o.Routes = map[string]transport.ServiceRoute{
			"/v1/Live": {Get: func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("alive")) }},
			"/v1/Get": {Post: func(w http.ResponseWriter, _ *http.Request, body []byte) {
				w.Write([]byte(strconv.Itoa(len(body))))
			}},
		}
	})
	for _, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/v1/Live", "", 200, "alive"},
		{"POST", "/v1/Live", "", 405, "GET, HEAD"},
		{"POST", "/v1/Get", "", 200, "0"},
		{"POST", "/v1/Get", strings.Repeat("x", 1<<20), 200, "1048576"},
		{"POST", "/v1/Get", strings.Repeat("x", 1<<20+1), 413, "larger than 1 MiB"},
		{"GET", "/v1/Get", "", 405, "POST"},
		{"GET", "/v1/check", "", 404, "nothing at"},
		{"GET", "/v1/Gett", "", 404, "did you mean /v1/Get?"},
	} {
		if got := s.do(t, x.method, x.path, "", x.body); got.status != x.status || !strings.Contains(got.body, x.want) {
			t.Errorf("%s %s of %d bytes: %d, %s", x.method, x.path, len(x.body), got.status, got.body)
		}
	}
	if n := s.Room(); n != 0 {
		t.Errorf("%d bytes of room are still taken", n)
	}
}

// Without room for a body it is refused.
func TestRoomOfRoutes(t *testing.T) {
	s := newServer(t, "", func(o *transport.Options) {
		o.Services, o.MaxDecodingBytes = []transport.GRPCService{nothing{}}, 4<<20
		o.Routes = map[string]transport.ServiceRoute{"/v1/Get": {Post: func(w http.ResponseWriter, _ *http.Request, _ []byte) { w.Write([]byte("yes")) }}}
	})
	for size, status := range map[int]int{10 << 10: 200, 50 << 10: 503} {
		if got := s.do(t, "POST", "/v1/Get", "", strings.Repeat("x", size)); got.status != status {
			t.Errorf("%d bytes: %d, %s", size, got.status, got.body)
		}
	}
}
