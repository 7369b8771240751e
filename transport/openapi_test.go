package transport_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/transport"
)

// spec is an OpenAPI file, as far as this one goes.
type spec struct {
	OpenAPI    string                          `yaml:"openapi"`
	Paths      map[string]map[string]operation `yaml:"paths"`
	Components struct {
		Responses map[string]response `yaml:"responses"`
		Schemas   map[string]schema   `yaml:"schemas"`
	} `yaml:"components"`
}

type operation struct {
	Parameters []struct {
		Name   string `yaml:"name"`
		Schema schema `yaml:"schema"`
	} `yaml:"parameters"`
	Servers     []struct{ URL string } `yaml:"servers"`
	RequestBody *response              `yaml:"requestBody"`
	Responses   map[string]response    `yaml:"responses"`
}

type response struct {
	Ref     string               `yaml:"$ref"`
	Headers map[string]any       `yaml:"headers"`
	Content map[string]mediaType `yaml:"content"`
}

type mediaType struct {
	Schema schema `yaml:"schema"`
}

type schema struct {
	Ref        string            `yaml:"$ref"`
	Type       string            `yaml:"type"`
	Properties map[string]schema `yaml:"properties"`
	Required   []string          `yaml:"required"`
	Items      *schema           `yaml:"items"`
	Enum       []string          `yaml:"enum"`
	Additional any               `yaml:"additionalProperties"`
}

func loadSpec(t *testing.T, s *server) *spec {
	t.Helper()
	got := s.get(t, "/openapi.yaml")
	if got.status != 200 || got.header.Get("Content-Type") != "application/yaml" {
		t.Fatalf("%+v", got)
	}
	var out spec
	if err := yaml.Unmarshal([]byte(got.body), &out); err != nil {
		t.Fatal(err)
	}
	if out.OpenAPI != "3.1.0" || len(out.Paths) == 0 {
		t.Fatalf("no paths in %q", out.OpenAPI)
	}
	return &out
}

// holds returns how a JSON value differs from a schema, "" if it does not.
func (s *spec) holds(m schema, v any) string {
	if m.Ref != "" {
		m = s.Components.Schemas[strings.TrimPrefix(m.Ref, "#/components/schemas/")]
	}
	switch v := v.(type) {
	case map[string]any:
		return s.holdsObject(m, v)
	case []any:
		if m.Type != "array" || m.Items == nil {
			return fmt.Sprintf("an array, not %q", m.Type)
		}
		for i, e := range v {
			if bad := s.holds(*m.Items, e); bad != "" {
				return fmt.Sprintf("[%d]: %s", i, bad)
			}
		}
	case string:
		if m.Type != "string" || m.Enum != nil && !slices.Contains(m.Enum, v) {
			return fmt.Sprintf("%q is no %s of %v", v, m.Type, m.Enum)
		}
	case bool:
		if m.Type != "boolean" {
			return fmt.Sprintf("a boolean, not %q", m.Type)
		}
	case float64:
		if m.Type != "integer" && m.Type != "number" {
			return fmt.Sprintf("a number, not %q", m.Type)
		}
	}
	return ""
}

func (s *spec) holdsObject(m schema, v map[string]any) string {
	if m.Type != "object" {
		return fmt.Sprintf("an object, not %q", m.Type)
	}
	for _, name := range m.Required {
		if _, has := v[name]; !has {
			return "lacks " + name
		}
	}
	for name, e := range v {
		property, known := m.Properties[name]
		if !known && m.Additional == false {
			return "has " + name
		}
		if known {
			if bad := s.holds(property, e); bad != "" {
				return name + ": " + bad
			}
		}
	}
	return ""
}

// holdsReply checks a reply against its operation in the file.
func (s *spec) holdsReply(t *testing.T, method, path string, got reply) {
	t.Helper()
	path, _, _ = strings.Cut(path, "?")
	r, known := s.Paths[path][strings.ToLower(method)].Responses[fmt.Sprint(got.status)]
	if !known {
		t.Errorf("%s %s answers with status %d, which is not in the file", method, path, got.status)
		return
	}
	if r.Ref != "" {
		r = s.Components.Responses[strings.TrimPrefix(r.Ref, "#/components/responses/")]
	}
	media, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	content, known := r.Content[media]
	if !known {
		t.Errorf("%s %s answers %d with %s, which is not in the file", method, path, got.status, media)
		return
	}
	for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit",
		"X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if got.header.Get(name) != "" && r.Headers[name] == nil {
			t.Errorf("%s %s answers %d with the field %s, which is not in the file", method, path, got.status, name)
		}
	}
	if !strings.HasSuffix(media, "json") {
		return
	}
	var v any
	if err := json.Unmarshal([]byte(got.body), &v); err != nil {
		t.Errorf("%s %s: %v", method, path, err)
	} else if bad := s.holds(content.Schema, v); bad != "" {
		t.Errorf("%s %s answers %s, which the file does not allow: %s", method, path, got.body, bad)
	}
}

// says returns a route that answers with an object.
func says(object string) transport.AdminRoute {
	return transport.AdminRoute{Serve: func(w http.ResponseWriter, _ *http.Request, _ transport.AdminCaller) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, object)
	}}
}

// TestOpenAPIIsWhatIsServed: every path, method, status and field of the file is
// the server's, and every one of the server's is in the file.
func TestOpenAPIIsWhatIsServed(t *testing.T) {
	public := newServer(t, fixed, func(o *transport.Options) {
		o.Auth = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "you are no proxy", http.StatusForbidden)
		})
	})
	admin := serveApart(t,
		transport.NewAdmin(transport.AdminOptions{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/plain")
			io.WriteString(w, "up 1\n")
		}), Routes: map[string]transport.AdminRoute{ // the program's own
			"/v1/export": {Post: true}, "/v1/import": {Post: true, Changes: true},
			"/v1/denials": says(`{"missing":[]}`), "/v1/history": says(`{"missing":[]}`), "/v1/rules": says(`{"missing":[]}`),
			"/v1/overrides": says(`{"overrides":[]}`), "/v1/overrides/set": {Post: true, Changes: true},
			"/v1/overrides/remove": {Post: true, Changes: true},
		}}))
	file := loadSpec(t, public)
	for path, methods := range file.Paths {
		s, other := public, admin
		for _, op := range methods {
			if len(op.Servers) > 0 {
				s, other = admin, public
			}
		}
		if got := other.get(t, path).status; got != 404 && path != "/openapi.yaml" {
			t.Errorf("%s is served at both listeners: %d", path, got)
		}
		wrong := s.do(t, "BREW", path, "", "")
		if wrong.status != 405 {
			t.Errorf("%s is in the file, and answers %d", path, wrong.status)
		}
		var allow []string
		for _, m := range strings.Split(wrong.header.Get("Allow"), ", ") {
			if m != "HEAD" {
				allow = append(allow, strings.ToLower(m))
			}
		}
		slices.Sort(allow)
		if want := slices.Sorted(maps.Keys(methods)); !slices.Equal(allow, want) {
			t.Errorf("%s is served for %v, the file says %v", path, allow, want)
		}
		for method, op := range methods {
			if op.RequestBody == nil {
				file.holdsReply(t, method, path, s.do(t, strings.ToUpper(method), path, "", ""))
			}
		}
	}
	s := public
	// Further replies of the server, from all the bad requests and some good ones.
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/check?user=ada&cost=9", ""}, {"GET", "/v1/check?nine=9", ""},
		{"POST", "/v1/check", `{"user":"ada","cost":3}`}, {"POST", "/v1/check", `{"user":"ada","cost":1}`},
		{"POST", "/v1/check", `{"user":"bob","limits":[{"limit":1,"window":"1m","block":"10s"}],"cost":1}`},
		{"POST", "/v1/check", `{"user":"bob","limits":[{"limit":1,"window":"1m","block":"10s"}],"cost":1}`},
		{"POST", "/v1/check", `{`}, {"POST", "/v1/check", strings.Repeat(" ", 1<<20+1)},
		{"GET", "/v1/explain?user=ada&cost=9", ""}, {"GET", "/v1/explain?nine=9", ""},
		{"POST", "/v1/explain", `{"user":"ada"}`},
		{"POST", "/v1/explain", `{"user":"ada","limits":[{"limit":9,"window":"1h","algorithm":"sliding_log"}]}`},
		{"POST", "/v1/explain", `{`}, {"POST", "/v1/explain", strings.Repeat(" ", 1<<20+1)},
		{"POST", "/v1/check/batch", `{"checks":[{"user":"ada"},{"nine":9}]}`}, {"POST", "/v1/check/batch", `[]`},
		{"POST", "/v1/check/batch", strings.Repeat(" ", 1<<20+1)}, {"POST", "/v1/reset", strings.Repeat(" ", 1<<20+1)},
		{"POST", "/v1/reset", `{"user":"ada"}`}, {"POST", "/v1/reset", `{`},
	} {
		file.holdsReply(t, c.method, c.path, s.do(t, c.method, c.path, "application/json", c.body))
	}
	if err := s.node.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/check", "/v1/explain", "/v1/check/batch", "/v1/reset"} {
		file.holdsReply(t, "POST", path, s.post(t, path, `{}`))
		file.holdsReply(t, "POST", path, s.do(t, "POST", path, "text/plain", `{}`))
	}
	shut := newServer(t, fixed, func(o *transport.Options) { o.AllowReset, o.AllowRequestLimits = false, false })
	file.holdsReply(t, "POST", "/v1/reset", shut.post(t, "/v1/reset", `{}`))
	file.holdsReply(t, "POST", "/v1/check", shut.post(t, "/v1/check", `{"limits":[{"limit":1}]}`))
	file.holdsReply(t, "POST", "/v1/explain", shut.post(t, "/v1/explain", `{"limits":[{"limit":1}]}`))
	mute := newServer(t, fixed, func(o *transport.Options) { o.Decider = dumb{o.Decider} })
	file.holdsReply(t, "POST", "/v1/explain", mute.post(t, "/v1/explain", `{}`))
	file.holdsReply(t, "GET", "/v1/explain", mute.get(t, "/v1/explain"))
}

// TestOpenAPIFields: the file has exactly the fields and parameters that the server
// reads and writes.
func TestOpenAPIFields(t *testing.T) {
	s := newServer(t, "", allowRefunds)
	file := loadSpec(t, s)
	for name, v := range map[string]any{
		"Answer": limiter.Answer{}, "LimitAnswer": limiter.LimitAnswer{}, "Explanation": limiter.Explanation{},
		"LimitExplanation": limiter.LimitExplanation{}, "ExplainedField": limiter.Field{},
		"ExplainedCount": limiter.WindowCount{},
	} {
		var fields []string
		for i := range reflect.TypeOf(v).NumField() {
			field, _, _ := strings.Cut(reflect.TypeOf(v).Field(i).Tag.Get("json"), ",")
			if field != "-" {
				fields = append(fields, field)
			}
		}
		slices.Sort(fields)
		if listed := slices.Sorted(maps.Keys(file.Components.Schemas[name].Properties)); !slices.Equal(fields, listed) {
			t.Errorf("%s has the fields %v, the file says %v", name, fields, listed)
		}
	}
	// The error for an unknown name lists the names that are read.
	path := "/v1/check"
	known := func(body string) []string {
		var p struct{ Detail string }
		got := s.post(t, path, body)
		if strings.HasPrefix(body, "/") {
			got = s.get(t, body)
		}
		if err := json.Unmarshal([]byte(got.body), &p); err != nil {
			t.Fatal(err)
		}
		_, list, _ := strings.Cut(p.Detail, "known: ")
		return slices.Sorted(slices.Values(strings.Split(list, ", ")))
	}
	of := func(name string) []string {
		return slices.Sorted(maps.Keys(file.Components.Schemas[name].Properties))
	}
	for name, got := range map[string][]string{
		"Check": known(`{"zzzzzzzzzzzzzzzz":1}`),
		"Limit": known(`{"limits":[{"zzzzzzzzzzzzzzzz":1}]}`),
	} {
		if !slices.Equal(got, of(name)) {
			t.Errorf("%s takes the fields %v, the file says %v", name, got, of(name))
		}
	}
	for path = range maps.Keys(file.Paths) {
		if name := map[string]string{"/v1/settle": "Settle", "/v1/cancel": "Cancel",
			"/v1/extend": "Extend"}[path]; name != "" {
			if got := known(`{"zzzzzzzzzzzzzzzz":1}`); !slices.Equal(got, of(name)) {
				t.Errorf("%s takes the fields %v, the file says %v", path, got, of(name))
			}
		}
	}
	path = "/v1/check"
	var parameters []string
	for _, p := range file.Paths["/v1/check"]["get"].Parameters {
		parameters = append(parameters, p.Name)
	}
	slices.Sort(parameters)
	for i, q := range file.Paths["/v1/explain"]["get"].Parameters {
		if p := file.Paths["/v1/check"]["get"].Parameters[i]; p.Name != q.Name || p.Schema.Type != q.Schema.Type {
			t.Errorf("parameter %d of an explanation is %v, of a check %v", i, q, p)
		}
	}
	if got := known("/v1/check?zzzzzzzzzzzzzzzz=1"); !slices.Equal(got, parameters) {
		t.Errorf("a check takes the parameters %v, the file says %v", got, parameters)
	}
	if got := slices.DeleteFunc(of("Check"), func(f string) bool {
		return slices.Contains([]string{"cost", "peek", "receipt", "id", "id_ttl_ms", "hold_ms"}, f)
	}); !slices.Equal(got, of("Reset")) {
		t.Errorf("a reset takes %v, the file says %v", got, of("Reset"))
	}
	if !slices.Equal(file.Components.Schemas["Limit"].Properties["algorithm"].Enum, limiter.AlgorithmNames()) {
		t.Error("the file lists other algorithms than there are")
	}
}
