package console_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/console"
	"github.com/weirlimit/weir/transport"
)

// TestMembersVouchForOverrides: what another member tells is in the audit by its name, whatever it says of who set it,
// and a list that takes memory is not read.
func TestMembersVouchForOverrides(t *testing.T) {
	d := open(t, nil, false)
	d.Overriding.Told("n7", fmt.Appendf(nil, `{"kind":"overrides","entries":[{"rule":"api","user":"ada","deny":true,`+
		`"why":"x","by":"root","member":"n1","told_by":"n1","set":%q,"until":%q,"number":%d}]}`,
		time.Now().UTC().Format(time.RFC3339), time.Now().UTC().Add(time.Hour).Format(time.RFC3339), time.Now().UnixMicro()))
	if len(d.heard) != 1 || d.heard[0].ToldBy != "n7" {
		t.Fatalf("heard: %+v", d.heard)
	}
	got := d.ask(t, http.MethodGet, "/v1/overrides", "")
	if !strings.Contains(got.body, `"told_by":"n7"`) {
		t.Errorf("the answer does not say who vouches: %s", got.body)
	}
	page := d.ask(t, http.MethodGet, "/why?path=/api/x&user=ada", "")
	if !strings.Contains(page.body, "by root, as n7 says") {
		t.Error("the page does not say who vouches")
	}
	d.Overriding.Told("n7", []byte(`{"kind":"overrides","entries":[`+strings.Repeat("{},", 3000)+`{}]}`))
	if len(d.heard) != 1 {
		t.Errorf("heard: %+v", d.heard)
	}
}

// TestExpelledMembersOverrideNothing: what a member has set ends when it is expelled, and the audit is told; what
// it has ended here is in force again and told to the others.
func TestExpelledMembersOverrideNothing(t *testing.T) {
	d := open(t, nil, false)
	got := d.ask(t, http.MethodPost, "/v1/overrides/set", `{"rule":"api","user":"eve","deny":true,"why":"x"}`,
		"Content-Type", "application/json")
	if got.status != http.StatusOK {
		t.Fatal(got.body)
	}
	now := time.Now().UTC().Add(time.Second)
	for i, is := range []string{`"user":"eve","removed":true`, `"user":"mallory"`} {
		d.Overriding.Told("n7", fmt.Appendf(nil, `{"kind":"overrides","entries":[{"rule":"api",%s,"why":"x","set":%q,`+
			`"until":%q,"number":%d}]}`, is, now.Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339),
			now.UnixMicro()+int64(i)))
	}
	allowed := func(user string) bool {
		out, err := d.node.Check(t.Context(), weir.Request{Path: "/api/x", User: user})
		return err == nil && out.Allowed && !out.Overridden
	}
	if !allowed("eve") || allowed("mallory") {
		t.Error("what another member tells is not in force")
	}
	told := len(d.told)
	d.EndOverrides(weir.Member{Name: "n1", State: "active"}, weir.Member{Name: "n7", State: "active"})
	if len(d.told) != told || allowed("mallory") {
		t.Error("what a member in good standing told has ended")
	}
	d.EndOverrides(weir.Member{Name: "n7", State: "expelled"})
	if allowed("eve") || !allowed("mallory") || len(d.told) != told+1 || len(d.ended) != 1 ||
		d.ended[0].User != "mallory" {
		t.Errorf("told %d, ended %+v, in force %+v", len(d.told)-told, d.ended, d.book.All())
	}
}

// TestAddressesAreNoUsers: an override of an address is not one of a user with that name, and none is of both.
func TestAddressesAreNoUsers(t *testing.T) {
	d := open(t, nil, false)
	kind := []string{"Content-Type", "application/json"}
	for body, want := range map[string]int{
		`{"rule":"api","ip":"::ffff:192.0.2.1","deny":true,"why":"x"}`:         http.StatusOK,
		`{"rule":"api","ip":"192.0.2.1","user":"ada","deny":true,"why":"x"}`:   http.StatusBadRequest,
		`{"rule":"api","ip":"ada","deny":true,"why":"x"}`:                      http.StatusBadRequest,
		`{"rule":"api","ip":"192.0.2.1","limit":"1/minute","why":"x","for":1}`: http.StatusBadRequest,
	} {
		if got := d.ask(t, http.MethodPost, "/v1/overrides/set", body, kind...); got.status != want {
			t.Errorf("%s: %d %s", body, got.status, got.body)
		}
	}
	for _, c := range []struct {
		user, ip string
		denied   bool
	}{{"ada", "192.0.2.1", true}, {"192.0.2.1", "", false}, {"ada", "192.0.2.2", false}} {
		out, err := d.node.Check(t.Context(), weir.Request{Path: "/api/x", User: c.user, IP: c.ip})
		if err != nil || out.Allowed == c.denied {
			t.Errorf("%+v: allowed %v, %v", c, out.Allowed, err)
		}
	}
	if page := d.ask(t, http.MethodGet, "/why?path=/api/x&user=ada&ip=192.0.2.1", ""); !strings.Contains(page.body,
		"Override in force") || !strings.Contains(page.body, `name="oip" value="192.0.2.1"`) {
		t.Error("the page does not show it")
	}
}

// TestOverridesOfOtherSpellings: the page shows the override that is in force, and ends it, by whatever spelling of the
// user it was set. That of the very spelling comes first, else the latest, which is the one that decides.
func TestOverridesOfOtherSpellings(t *testing.T) {
	d := open(t, nil, false)
	if err := d.node.SetRules([]byte("version: 1\nrules:\n  - {name: login, match: {path: ^/login$}, " +
		"key: [{user: {fold: case}}], limits: [3/minute]}\n")); err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{`{"rule":"login","user":"MALLORY","unlimited":true,"why":"x"}`,
		`{"rule":"login","user":"Mallory","deny":true,"why":"x"}`} {
		if got := d.ask(t, http.MethodPost, "/v1/overrides/set", body, "Content-Type", "application/json"); got.status !=
			http.StatusOK {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	for user, want := range map[string]string{"mallory": "Mallory", "Mallory": "Mallory", "MALLORY": "MALLORY"} {
		page := d.ask(t, http.MethodGet, "/why?path=/login&user="+user, "")
		m := regexp.MustCompile(`name="ouser" value="([^"]*)"`).FindStringSubmatch(page.body)
		if m == nil || m[1] != want ||
			!strings.Contains(page.body, "Override in force") {
			t.Errorf("%s: the page would end the override of %q", user, m)
		}
		if out, err := d.node.Check(t.Context(), weir.Request{Path: "/login", User: user}); err != nil ||
			out.Allowed != (want == "MALLORY") {
			t.Errorf("%s is allowed: %t, %v", user, out.Allowed, err)
		}
	}
}

// TestWhyNeedsThePermissionToExplain: the page asks what the method Explain asks, so it needs what that needs, and the
// button what the method Reset needs, for the same rules.
func TestWhyNeedsThePermissionToExplain(t *testing.T) {
	d := open(t, staff(), true)
	for _, c := range []struct {
		who, query string
		may        bool
	}{
		{"viewer", "path=/login&user=ada", true}, {"watcher", "path=/login&user=ada", false},
		{"narrow", "path=/api/x&user=ada", true}, {"narrow", "path=/login&user=ada", false},
		{"narrow", "rule=api&user=ada", true}, {"narrow", "rule=login&user=ada", false},
		{"viewer", "rule=login&user=ada", false}, // it may not name rules
		{"viewer", "path=/login&user=ada&tenant=bank", true}, {"bank", "path=/login&user=ada", true},
	} {
		got := d.ask(t, http.MethodGet, "/why.json?"+c.query, "", "Authorization", "Bearer "+c.who)
		if got.status != http.StatusOK || strings.Contains(got.body, `"explanation"`) != c.may {
			t.Errorf("%s, %s: %d %s", c.who, c.query, got.status, got.body)
		}
	}
	page := d.ask(t, http.MethodGet, "/why?path=/api/x&user=ada", "", "Authorization", "Bearer narrow")
	m := mark.FindStringSubmatch(page.body)
	if m == nil {
		t.Fatal("the page has no mark")
	}
	for body, want := range map[string]int{"path=/api/x&user=ada": http.StatusSeeOther, "rule=api&user=ada": 303,
		"rule=login&user=ada": http.StatusForbidden, "path=/login&user=ada": http.StatusForbidden} {
		if got := d.ask(t, http.MethodPost, "/act/reset", "mark="+m[1]+"&"+body, "Authorization", "Bearer narrow",
			"Content-Type", "application/x-www-form-urlencoded"); got.status != want {
			t.Errorf("reset of %s: %d, want %d", body, got.status, want)
		}
	}
}

// TestStreamEndsWithItsSession: one who signs out sees nothing more.
func TestStreamEndsWithItsSession(t *testing.T) {
	d := open(t, staff(), true)
	kind := []string{"Content-Type", "application/x-www-form-urlencoded"}
	in := d.ask(t, http.MethodPost, "/sign-in", url.Values{"token": {"operator"}}.Encode(), kind...)
	set := in.header.Get("Set-Cookie")
	cookie := []string{"Cookie", strings.Split(set, ";")[0]}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.url+"/stream?page=refused", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", cookie[1])
	res, err := d.client.Do(r)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(err, res.StatusCode)
	}
	defer res.Body.Close()
	m := mark.FindStringSubmatch(d.ask(t, http.MethodGet, "/", "", cookie...).body)
	if got := d.ask(t, http.MethodPost, "/sign-out", "mark="+m[1], append(cookie, kind...)...); got.status != 303 {
		t.Fatal(got.status)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil { // hangs if it goes on
		t.Fatal(err)
	}
}

// TestNoLinkSaysWhatWasDone: that an override was set says only the answer to the form.
func TestNoLinkSaysWhatWasDone(t *testing.T) {
	d := open(t, nil, false)
	const says = "is in force on all members in reach"
	for _, query := range []string{"done=set&n=0", "done=set&n=0&said=", "done=set&n=0&said=" + strings.Repeat("0", 64)} {
		if got := d.ask(t, http.MethodGet, "/why?"+query, ""); strings.Contains(got.body, says) {
			t.Errorf("the link %s is believed", query)
		}
	}
	m := mark.FindStringSubmatch(d.ask(t, http.MethodGet, "/why?path=/login&user=ada", "").body)
	form := url.Values{"mark": {m[1]}, "orule": {"login"}, "ouser": {"ada"}, "kind": {"deny"}, "why": {"x"}}
	got := d.ask(t, http.MethodPost, "/act/override", form.Encode(), "Content-Type",
		"application/x-www-form-urlencoded")
	to := got.header.Get("Location")
	if page := d.ask(t, http.MethodGet, to, ""); !strings.Contains(page.body, says) {
		t.Errorf("after the form %s does not say so", to)
	}
	to = strings.Replace(to, "done=set", "done=removed", 1)
	if page := d.ask(t, http.MethodGet, to, ""); strings.Contains(page.body, "The override has ended") {
		t.Error("its mark does for something else")
	}
}

// TestParametersAreBounded: a page takes those that it knows, once, and not of any length.
func TestParametersAreBounded(t *testing.T) {
	d := open(t, nil, false)
	long := strings.Repeat("x", 9<<10)
	for path, want := range map[string]int{"/refused?user=" + long: 400, "/stream?page=refused&user=" + long: 400,
		"/refused?user=a&user=b": 400, "/why.json?path=" + long: 400, "/refused?x=" + long: 200} {
		if got := d.ask(t, http.MethodGet, path, ""); got.status != want {
			t.Errorf("%.40s: %d, want %d", path, got.status, want)
		}
	}
}

// TestOneWhoLeavesSpoilsNothing: what several ask at once does not end with the request of the one who asked first.
func TestOneWhoLeavesSpoilsNothing(t *testing.T) {
	d := open(t, nil, false)
	began, goOn := make(chan bool, 1), make(chan bool)
	d.asks = func(ctx context.Context) ([]console.Answered, error) {
		began <- true
		<-goOn
		select {
		case <-ctx.Done(): // as members do
			return []console.Answered{{Member: "n2", Why: "it did not answer in time"}}, nil
		default:
			return nil, nil
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url+"/members.json", nil)
	if err != nil {
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() {
		res, err := d.client.Do(r)
		if err == nil {
			res.Body.Close()
		}
		left <- err
	}()
	<-began
	cancel()
	if err := <-left; err == nil {
		t.Fatal("the first has an answer")
	}
	second := make(chan answer, 1)
	go func() { second <- d.ask(t, http.MethodGet, "/members.json", "") }()
	close(goOn)
	if got := <-second; got.status != http.StatusOK || strings.Contains(got.body, "in time") {
		t.Errorf("the second: %d %s", got.status, got.body)
	}
}

// TestNodeWithoutClusterSaysSo: its overrides are in force on it alone, also where others count in the same Redis.
func TestNodeWithoutClusterSaysSo(t *testing.T) {
	d := open(t, nil, false)
	if got := d.ask(t, http.MethodGet, "/v1/overrides", ""); strings.Contains(got.body, "only") {
		t.Errorf("a member says %s", got.body)
	}
	c := console.New(console.Config{Node: func() *weir.Node { return d.node }, Now: time.Now})
	w := httptest.NewRecorder()
	c.Routes()["/v1/overrides"].Serve(w, httptest.NewRequest(http.MethodGet, "/v1/overrides", nil),
		transport.AdminCaller{})
	if !strings.Contains(w.Body.String(), "on this node only") {
		t.Errorf("a node alone says %s", w.Body)
	}
	w = httptest.NewRecorder()
	c.Routes()["/why"].Serve(w, httptest.NewRequest(http.MethodGet, "/why?path=/api/x&user=ada", nil),
		transport.AdminCaller{})
	if text := w.Body.String(); strings.Contains(text, "on all members in reach") ||
		!strings.Contains(text, "on this node alone, until it ends") {
		t.Errorf("its page Why says %.3000s", text)
	}
}

// TestDigestsAreAnsweredSeldom: a member that says again and again that it has other overrides is not sent all of them
// each time.
func TestDigestsAreAnsweredSeldom(t *testing.T) {
	d := open(t, nil, false)
	if got := d.ask(t, http.MethodPost, "/v1/overrides/set", `{"rule":"api","user":"ada","deny":true,"why":"x"}`,
		"Content-Type", "application/json"); got.status != http.StatusOK {
		t.Fatal(got.status)
	}
	d.told = nil
	for range 100 {
		d.Overriding.Told("n7", []byte(`{"kind":"overrides","digest":7}`))
	}
	d.Overriding.Told("n8", []byte(`{"kind":"overrides","digest":7}`))
	if len(d.told) != 2 {
		t.Errorf("all overrides are told %d times, want once to each of two", len(d.told))
	}
}

// TestNoIdentityEndsSessionsOfOthers: one that signs in again and again ends its own sessions.
func TestNoIdentityEndsSessionsOfOthers(t *testing.T) {
	d := open(t, staff(), true)
	now := time.Now()
	first := d.SignIn("viewer", "viewer", now)
	for range 1100 {
		d.SignIn("operator", "operator", now.Add(time.Second))
	}
	if got := d.ask(t, http.MethodGet, "/", "", "Cookie", "__Host-weir="+first); got.status != http.StatusOK {
		t.Errorf("the session of another: %d", got.status)
	}
}

// TestComparingNeedsTheMark: another site cannot make a node compare files.
func TestComparingNeedsTheMark(t *testing.T) {
	d := open(t, nil, false)
	kind := []string{"Content-Type", "application/x-www-form-urlencoded"}
	form := url.Values{"file": {"version: 1\nrules: []\n"}}
	if got := d.ask(t, http.MethodPost, "/rules/compare", form.Encode(), kind...); got.status < 400 {
		t.Errorf("without a mark: %d", got.status)
	}
	m := mark.FindStringSubmatch(d.ask(t, http.MethodGet, "/rules", "").body)
	if m == nil {
		t.Fatal("the page has no mark")
	}
	form.Set("mark", m[1])
	if got := d.ask(t, http.MethodPost, "/rules/compare", form.Encode(), kind...); got.status != http.StatusOK ||
		!strings.Contains(got.body, "login is gone") {
		t.Errorf("its own form: %d", got.status)
	}
}

// TestNoMemberSpoilsTheAnswerOfAll: times that no JSON has are left out.
func TestNoMemberSpoilsTheAnswerOfAll(t *testing.T) {
	d := open(t, nil, false)
	d.refuse(t, weir.Request{Path: "/login", User: "ada"})
	d.asked = func([]byte) []console.Answered {
		return []console.Answered{{Member: "n2", Text: []byte(`{"keys":[{"key":"x","rule":"login","count":9,` +
			`"last":"9999-12-31T23:59:59-12:00","samples":[{"time":"9999-12-31T23:59:59-12:00",` +
			`"retry_after_ms":9000000000}]}]}`)}}
	}
	for _, path := range []string{"/refused.json", "/v1/denials", "/refused", "/"} {
		if got := d.ask(t, http.MethodGet, path, ""); got.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
}

// TestComparing: of what was refused, and of what the same keys were allowed, a pasted file says what it changes, and
// where it cannot know.
func TestComparing(t *testing.T) {
	d := open(t, nil, false)
	d.refuse(t, weir.Request{Path: "/login", User: "ada"}) // three are allowed, one is not
	m := mark.FindStringSubmatch(d.ask(t, http.MethodGet, "/rules", "").body)
	if m == nil {
		t.Fatal("the page has no mark")
	}
	const rule = "version: 1\nrules:\n  - {name: login, match: {path: \"^/login/?$\"}, %s}\n"
	row := func(allowed, refused int, says string) string {
		return fmt.Sprintf(`<td class="n">%d</td><td class="n">%d</td><td>%s</td>`, allowed, refused, says)
	}
	for _, c := range []struct{ file, want string }{
		{someRules, "nothing: it means the same."},
		{fmt.Sprintf(rule, "key: [user], limits: [10/minute]"), row(1, 0, "all allowed")},
		{fmt.Sprintf(rule, "key: [user], limits: [3/minute]"), row(0, 0, "still refused")},
		{fmt.Sprintf(rule, "key: [user], limits: [1/minute]"), row(0, 2, "more refused")},
		{fmt.Sprintf(rule, "deny: true"), row(0, 3, "denied by the rule")},
		{fmt.Sprintf(rule, "key: [user], limits: [{limit: {by: attr:plan, of: {pro: 9/minute}, else: 1/minute}}]"),
			row(0, 2, "more refused; by the limit of else, as attr:plan is not recorded")},
	} {
		form := url.Values{"file": {c.file}, "mark": {m[1]}}
		got := d.ask(t, http.MethodPost, "/rules/compare", form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
		if got.status != http.StatusOK || !strings.Contains(got.body, c.want) {
			_, after, _ := strings.Cut(got.body, `id="compared"`)
			t.Errorf("%s: %d, without %s: %.1500s", c.file, got.status, c.want, after)
		}
	}
}

// TestWhyShowsWhatIsReserved: until when, and apart from the state of the counter.
func TestWhyShowsWhatIsReserved(t *testing.T) {
	d := open(t, nil, false)
	if _, err := d.node.Check(t.Context(), weir.Request{Path: "/api/x", User: "ada", Cost: weir.Units(7), ID: "1",
		Hold: time.Minute}); err != nil {
		t.Fatal(err)
	}
	got := d.ask(t, http.MethodGet, "/why?path=/api/x&user=ada", "").body
	_, after, ok := strings.Cut(got, "<h2>Reserved or lent</h2>")
	if !ok || !strings.Contains(after, `<td class="n">7</td><td><time datetime="`) ||
		!strings.Contains(after, "in 1 charges together") || !strings.Contains(after, "<td>then given back</td>") {
		t.Errorf("the page: %.2000s", after)
	}
}
