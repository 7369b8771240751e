package gubernator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/listen"
	pb "github.com/weirlimit/weir/proto/gubernator/v1"
	"github.com/weirlimit/weir/weirtest"
)

// read decodes a message as the server does.
func read(t testing.TB, data []byte) (*message, *listen.Room) {
	t.Helper()
	room := &listen.Room{Most: maxDecoded}
	m := &message{room: listen.Hold{Room: room}}
	if err := m.UnmarshalWire(data); err != nil {
		t.Fatal(err)
	}
	return m, room
}

// A message with too many parts is refused before they are built, and one that is malformed.
func TestParts(t *testing.T) {
	item := func(parts ...[]byte) (out []byte) {
		for _, p := range parts {
			out = protowire.AppendBytes(protowire.AppendTag(out, fieldRequests, protowire.BytesType), p)
		}
		return out
	}
	entries := func(n int) (out []byte) {
		for range n {
			out = protowire.AppendBytes(protowire.AppendTag(out, fieldMetadata, protowire.BytesType), nil)
		}
		return out
	}
	many := func(n int, part []byte) (out []byte) {
		for range n {
			out = append(out, item(part)...)
		}
		return out
	}
	for name, x := range map[string]struct {
		data []byte
		code codes.Code
		want string
	}{
		"nothing":        {nil, codes.OK, ""},
		"1000 items":     {many(1000, nil), codes.OK, ""},
		"1001 items":     {many(1001, nil), codes.OutOfRange, "Requests.RateLimits list too large; max size is '1000'"},
		"half a million": {many(1<<19, nil), codes.OutOfRange, "max size is '1000'"},
		"much metadata":  {item(entries(maxMetadata)), codes.OK, ""},
		"more metadata": {item(entries(maxMetadata), entries(1)), codes.InvalidArgument,
			"more than 16000 entries of metadata"},
		"unknown fields":  {protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1), codes.OK, ""},
		"cut off":         {[]byte{1<<3 | 2, 5, 0}, codes.InvalidArgument, "the message is not valid"},
		"an item cut off": {item([]byte{9<<3 | 2, 9}), codes.InvalidArgument, "the message is not valid"},
		"no tag":          {[]byte{0xff, 0xff}, codes.InvalidArgument, "the message is not valid"},
		"another type": {protowire.AppendVarint(protowire.AppendTag(nil, fieldRequests, protowire.VarintType), 1),
			codes.OK, ""},
		"text not in UTF8":     {item([]byte{1<<3 | 2, 1, 0xff}), codes.OK, ""},
		"metadata not in UTF8": {item([]byte{9<<3 | 2, 3, 1<<3 | 2, 1, 0xff}), codes.OK, ""},
	} {
		m, room := read(t, x.data)
		if status.Code(m.err) != x.code || m.err != nil && !strings.Contains(m.err.Error(), x.want) {
			t.Errorf("%s: %v, want %v %s", name, m.err, x.code, x.want)
		}
		want := int64(weight * len(x.data))
		if want <= listen.FreeWeight {
			want = 0
		}
		if n := room.InUse(); n != want {
			t.Errorf("%s: %d bytes are taken, want %d", name, n, want)
		}
		if m.release(); room.InUse() != 0 {
			t.Errorf("%s: %d bytes are kept", name, room.InUse())
		}
	}
}

// TestRoomIsShared: one address that has much decided leaves the others room, and small messages need none.
func TestRoomIsShared(t *testing.T) {
	room := &listen.Room{Most: maxDecoded}
	large := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), make([]byte, MaxMessageBytes/2))
	ask := func(from string, data []byte) codes.Code {
		m := &message{room: listen.Hold{Room: room, Remote: from}}
		if err := m.UnmarshalWire(data); err != nil {
			t.Fatal(err)
		}
		return status.Code(m.err) // it is never released
	}
	n := 0
	for ask("192.0.2.1:1", large) == codes.OK {
		if n++; n > 100 {
			t.Fatal("there is no bound")
		}
	}
	for _, from := range []string{"192.0.2.2:1", "192.0.2.3:1"} {
		if got := ask(from, large); got != codes.OK {
			t.Errorf("another address, after %d of one: %v", n, got)
		}
	}
	if got := ask("192.0.2.1:1", nil); got != codes.OK {
		t.Errorf("a small message: %v", got)
	}
}

// TestKeysAreBytes: a key that is not in UTF-8 counts, by its bytes, and so do the others of its message.
func TestKeysAreBytes(t *testing.T) {
	ok, err := proto.Marshal(&pb.GetRateLimitsReq{Requests: []*pb.RateLimitReq{
		{Name: "n", UniqueKey: "k1", Hits: 1, Limit: 2, Duration: 60_000, Metadata: map[string]string{"a": "b"}},
		{Name: "n", UniqueKey: "k2", Hits: -3, Limit: 5, Duration: 6, Behavior: pb.Behavior_NO_BATCHING, Burst: 4,
			CreatedAt: new(int64)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	m, _ := read(t, bytes.Replace(ok, []byte("k1"), []byte("k\xff"), 1))
	if m.err != nil || len(m.request.GetRequests()) != 2 {
		t.Fatal(m.err, len(m.request.GetRequests()))
	}
	one, two := m.request.GetRequests()[0], m.request.GetRequests()[1]
	if one.GetUniqueKey() != "k\xff" || one.GetName() != "n" || one.GetHits() != 1 || one.GetLimit() != 2 ||
		one.GetDuration() != 60_000 {
		t.Errorf("%+v", one)
	}
	if two.GetUniqueKey() != "k2" || two.GetHits() != -3 || two.GetBehavior() != pb.Behavior_NO_BATCHING ||
		two.GetBurst() != 4 || two.CreatedAt == nil {
		t.Errorf("%+v", two)
	}
	f := newFixture(t, nil)
	for i, want := range []pb.Status{pb.Status_UNDER_LIMIT, pb.Status_UNDER_LIMIT, pb.Status_OVER_LIMIT} {
		by := f.service.front.Anyone(nil)
		out, err := f.service.getRateLimits(t.Context(), &by, &pb.GetRateLimitsReq{Requests: []*pb.RateLimitReq{one}}, 0)
		if err != nil || out.GetResponses()[0].GetError() != "" || out.GetResponses()[0].GetStatus() != want {
			t.Errorf("hit %d: %v, %v", i, out, err)
		}
	}
}

// post sends a body to the JSON door, as a server of package transport does.
func post(s *Service, body string) (int, string) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/GetRateLimits", http.NoBody)
	s.Routes()["/v1/GetRateLimits"].Post(w, r, []byte(body))
	return w.Code, w.Body.String()
}

// JSON is read by both spellings of names and of numbers, and written by the names of the
// protocol, with all fields.
func TestJSON(t *testing.T) {
	f := newFixture(t, nil)
	reset := fmt.Sprint(f.node.Now().UnixMilli() + 60_000)
	answer := func(status string, left int) string {
		return fmt.Sprintf(`{"status":"%s","limit":"10","remaining":"%d","reset_time":"%s","error":"","metadata":{}}`, status,
			left, reset)
	}
	for i, x := range []struct {
		body   string
		status int
		want   string // the whole of an answer, a part of an error
	}{
		{`{"requests":[{"name":"n","unique_key":"k","hits":"4","limit":"10","duration":"60000"}]}`, 200,
			`{"responses":[` + answer("UNDER_LIMIT", 6) + `]}`},
		{`{"requests":[{"name":"n","uniqueKey":"k","hits":1,"limit":10,"duration":60000,"algorithm":"TOKEN_BUCKET",` +
			`"behavior":"NO_BATCHING"}]}`, 200, `{"responses":[` + answer("UNDER_LIMIT", 5) + `]}`},
		{`{"requests":[{"name":"n","uniqueKey":"k","hits":9,"limit":10,"duration":6e4,"algorithm":0,"behavior":34,` +
			`"metadata":{"a":"b"},"created_at":null,"later":{"x":[1]}}],"more":1}`, 200,
			`{"responses":[` + answer("OVER_LIMIT", 0) + `]}`},
		{`{"requests":[{"name":"","uniqueKey":"k"},{}]}`, 200,
			`{"responses":[{"status":"UNDER_LIMIT","limit":"0","remaining":"0","reset_time":"0","error":"field 'namespace' ` +
				`cannot be empty","metadata":{}},` +
				`{"status":"UNDER_LIMIT","limit":"0","remaining":"0","reset_time":"0","error":"field 'unique_key' cannot be ` +
				`empty","metadata":{}}]}`},
		{`{}`, 200, `{"responses":[]}`},
		{`{"requests":[{"name":"n","uniqueKey":"k","hits":-1,"limit":-5,"duration":-1}]}`, 200, ""},
		{``, 400, `{"code":3,"message":"`},
		{`{`, 400, `"code":3`},
		{`[]`, 400, `"code":3`},
		{`null`, 400, `"code":3`},
		{`{"requests":{}}`, 400, `"code":3`},
		{`{"requests":[{"hits":"many"}]}`, 400, `"code":3`},
		{`{"requests":[{"hits":1.5}]}`, 400, `"code":3`},
		{`{"requests":[{"hits":9223372036854775808}]}`, 400, `"code":3`},
		// as a field that is not known
		{`{"requests":[{"name":"n","uniqueKey":"new","hits":1,"limit":10,"duration":60000,"algorithm":"SIEVE"}]}`, 200,
			`{"responses":[` + answer("UNDER_LIMIT", 9) + `]}`},
		{`{"requests":[{"name":"\ud800"}]}`, 400, `"code":3`},
		{"{\"requests\":[{\"name\":\"\xff\"}]}", 400, `"code":3`},
		{`{"requests":[{"name":"a","name":"b"}]}`, 400, `"code":3`},
		{`{"requests":[{"name":"` + strings.Repeat("x", 1<<20-100) + `","uniqueKey":"k","limit":1,"duration":1000}]}`, 200,
			`"error":""`},
		{`{"requests":[{"hits":"` + strings.Repeat("x", 1<<20-100) + `"}]}`, 400, `"code":3`},
		{`{"requests":[{}` + strings.Repeat(",{}", 1000) + `]}`, 400,
			`{"code":11,"message":"Requests.RateLimits list too large; max size is '1000'","details":[]}`},
		{strings.Repeat(`{"x":`, 100_000), 400, `"code":3`},
		{strings.Repeat("[", 1<<20), 400, `"code":3`},
		{`{"x":` + strings.Repeat("[", 1<<19) + strings.Repeat("]", 1<<19) + `}`, 0, ""}, // it is skipped, or too deep
	} {
		status, text := post(f.service, x.body)
		if x.status != 0 && status != x.status || !json.Valid([]byte(text)) || status == 400 && len(text) > 1000 {
			t.Errorf("body %d, %.100s: %d, %.300s", i, x.body, status, text)
		}
		switch {
		case x.status == 200 && strings.HasPrefix(x.want, "{") && text != x.want, !strings.Contains(text, x.want):
			t.Errorf("body %d, %.100s: %.300s, want %s", i, x.body, text, x.want)
		}
	}
}

// get asks the JSON door for a path.
func get(s *Service, path string) (int, string) {
	w := httptest.NewRecorder()
	s.Routes()[path].Get(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	return w.Code, w.Body.String()
}

// Health lists the members, to those who are identified. A node that is not ready, or is
// stopping, is told by errors.
func TestHealth(t *testing.T) {
	var ready, live error
	f := newFixture(t, func(o *Options) {
		o.Peers = func() []Peer { return []Peer{{"127.0.0.1:9695", true}, {"127.0.0.2:9695", false}} }
		o.Ready, o.Live = func() error { return ready }, func() error { return live }
	})
	const whole = `{"status":"healthy","message":"","peer_count":2,"advertise_address":"127.0.0.1:9695",` +
		`"local_peers":[{"grpc_address":"127.0.0.1:9695","data_center":""},{"grpc_address":"127.0.0.2:9695",` +
		`"data_center":""}],"region_peers":[]}`
	is := func(path string, status int, want string) {
		t.Helper()
		if got, text := get(f.service, path); got != status || text != want {
			t.Errorf("%s: %d, %s, want %s", path, got, text, want)
		}
	}
	is("/v1/HealthCheck", 200, whole)
	is("/v1/LiveCheck", 200, `{}`)
	ready, live = errors.New("joining"), errors.New("server is shutting down")
	is("/v1/HealthCheck", 503, `{"code":14,"message":"joining","details":[]}`)
	is("/v1/LiveCheck", 503, `{"code":14,"message":"server is shutting down","details":[]}`)
	ready, f.service.options.Config.Access, f.service.front.Access = nil, strangers{}, strangers{}
	is("/v1/HealthCheck", 200,
		`{"status":"healthy","message":"","peer_count":0,"advertise_address":"","local_peers":[],"region_peers":[]}`)
	ready = errors.New("member n2 cannot be reached")
	if status, text := get(f.service, "/v1/HealthCheck"); status != 503 || strings.Contains(text, "n2") {
		t.Errorf("one who is not identified is told why the node is not ready: %d, %s", status, text)
	}
	ready = nil
	if status, text := post(f.service, `{"requests":[{}]}`); status != 401 || !strings.Contains(text, `"code":16`) {
		t.Errorf("one who is not identified: %d, %s", status, text)
	}
}

// strangers identifies nobody.
type strangers struct{}

func (strangers) Identify(frontend.Credentials) (frontend.Caller, error) {
	return nil, fmt.Errorf("%w: show a token", frontend.ErrUnauthenticated)
}

// fuzzed is a service for a fuzz target.
func fuzzed(f *testing.F) *Service {
	f.Helper()
	node := weirtest.New(f, "version: 1\nrules: []\n")
	s, err := NewService(Options{Config: frontend.Config{Decider: node, AllowRequestLimits: true, AllowReset: true,
		AllowRefunds: true}, Now: node.Now})
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// FuzzJSON holds the JSON door against whatever is sent: it answers with JSON, with one answer
// for each item, and what it refuses it refuses shortly.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"requests":[{"name":"n","unique_key":"k","hits":"4","limit":"10","duration":"60000"}]}`,
		`{"requests":[{"name":"n","uniqueKey":"k","hits":-1,"limit":10,"duration":5,"algorithm":1,"behavior":63,"burst":3,` +
			`"created_at":"1"}]}`,
		`{"requests":[{},{"behavior":"RESET_REMAINING"}],"x":[[[]]]}`, `[`, `{"requests":null}`, "",
	} {
		f.Add(s)
	}
	service := fuzzed(f)
	f.Fuzz(func(t *testing.T, body string) {
		status, text := post(service, body)
		if !json.Valid([]byte(text)) {
			t.Fatalf("%d: %.300s", status, text)
		}
		switch status {
		case http.StatusOK:
			var in map[string]json.RawMessage
			var out struct{ Responses []json.RawMessage }
			var items []json.RawMessage
			if err := errors.Join(json.Unmarshal([]byte(text), &out), json.Unmarshal([]byte(body), &in)); err != nil {
				t.Fatal(err)
			}
			if list := in["requests"]; list != nil {
				if err := json.Unmarshal(list, &items); err != nil {
					t.Fatal(err)
				}
			}
			if len(items) != len(out.Responses) {
				t.Fatalf("%d items have %d answers", len(items), len(out.Responses))
			}
		case http.StatusBadRequest:
			if len(text) > 4000 {
				t.Fatalf("a refusal of %d bytes", len(text))
			}
		default:
			t.Fatalf("%d: %.300s", status, text)
		}
	})
}

// FuzzMessage holds the decoder of gRPC against the library's: it takes what that takes, up to
// its bounds, and each item is answered.
func FuzzMessage(f *testing.F) {
	for _, m := range []*pb.GetRateLimitsReq{
		{}, {Requests: []*pb.RateLimitReq{{Name: "n", UniqueKey: "k", Hits: 1, Limit: 2, Duration: 3,
			Metadata: map[string]string{"a": "b"}}, {Behavior: 63, CreatedAt: new(int64(5))}}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	service := fuzzed(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		m, _ := read(t, data)
		var in pb.GetRateLimitsReq
		if err := proto.Unmarshal(data, &in); (err == nil) != (m.err == nil) && status.Code(m.err) != codes.OutOfRange &&
			!strings.Contains(fmt.Sprint(m.err), "entries of metadata") {
			t.Fatalf("%v, and of the library %v", m.err, err)
		}
		if m.err != nil {
			return
		}
		out, err := service.getRateLimits(t.Context(), anyone(service), &m.request, len(data))
		if err != nil || len(out.GetResponses()) != len(m.request.GetRequests()) {
			t.Fatalf("%d items: %v, %v", len(m.request.GetRequests()), out, err)
		}
		if _, err := proto.Marshal(out); err != nil {
			t.Fatal(err)
		}
	})
}
