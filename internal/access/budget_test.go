package access

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirlimit/weir/internal/frontend"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// withBudget returns the permissions with a budget of the shop.
func withBudget(budget string) string {
	return strings.Replace(permissions, "tenant: shop\n", "tenant: shop\n    budget: {"+budget+"}\n", 1)
}

// user returns a user that was not asked for before, so that no limit denies.
func (w *world) user() string {
	w.lock.Lock()
	defer w.lock.Unlock()
	w.users++
	return "u" + strconv.Itoa(w.users)
}

// TestBudgetOfChecks: beyond the budget nothing is decided or counted, the answer says
// which budget it is and how long to wait, and others are not concerned.
func TestBudgetOfChecks(t *testing.T) {
	w := newWorld(t, withBudget("checks: 5"))
	shop, bank := w.token("shop"), w.token("bank")
	check := func(token, path string) (int, string, http.Header) {
		return w.ask("GET", w.http+"/v1/check?path="+path+"&user="+w.user(), token, "")
	}
	for i := range 5 {
		if code, text, _ := check(shop, "/cart"); code != http.StatusOK {
			t.Fatalf("check %d: %d %s", i, code, text)
		}
	}
	counted := w.node.Stats().Keys
	code, text, header := check(shop, "/cart")
	if code != http.StatusTooManyRequests || !strings.Contains(text, "budget of 5 checks a second") ||
		header.Get("Retry-After") != "1" ||
		header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("beyond the budget: %d %s %v", code, text, header)
	}
	_, err := w.grpc.Check(w.bearer(shop), &weirv1.CheckRequest{Path: "/cart", User: w.user()})
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted ||
		!strings.Contains(s.Message(), "budget of 5 checks a second") || len(s.Details()) != 1 {
		t.Errorf("over gRPC: %v, details %v", err, s.Details())
	}
	if code, text, _ := check(bank, "/pay"); code != http.StatusOK {
		t.Errorf("another identity: %d %s", code, text)
	}
	if n := w.node.Stats().Keys; n != counted+1 {
		t.Errorf("%d counters, want %d and that of the other identity", n, counted)
	}
	w.now = w.now.Add(400 * time.Millisecond)
	batch := func(n int) error {
		m := &weirv1.CheckBatchRequest{}
		for range n {
			m.Checks = append(m.Checks, &weirv1.CheckRequest{Path: "/cart", User: w.user()})
		}
		_, err := w.grpc.CheckBatch(w.bearer(shop), m)
		return err
	}
	counted = w.node.Stats().Keys
	if err := batch(3); status.Code(err) != codes.ResourceExhausted { // 2 are there again
		t.Errorf("a batch beyond the budget: %v", err)
	}
	if n := w.node.Stats().Keys; n != counted {
		t.Errorf("%d checks of the batch were counted", n-counted)
	}
	if err := batch(2); err != nil {
		t.Errorf("a batch within it: %v", err)
	}
	if err := batch(6); status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "send smaller messages") {
		t.Errorf("a batch that never passes: %v", err)
	}
	if n := len(w.audited()); n != 0 {
		t.Errorf("%d events: a budget is no refusal", n)
	}
}

// TestBudgetOfBytes: a message is charged to all parts of the budget, or to none.
func TestBudgetOfBytes(t *testing.T) {
	w := newWorld(t, withBudget("checks: 2, bytes: 400"))
	shop := w.token("shop")
	ask := func(more string) (int, string) {
		code, text, _ := w.ask("POST", w.http+"/v1/check", shop, `{"path": "/cart", "user": "`+w.user()+more+`"}`)
		return code, text
	}
	for range 2 {
		if code, text := ask(strings.Repeat("x", 400)); code != http.StatusTooManyRequests ||
			!strings.Contains(text, "budget of 400 bytes a second") {
			t.Errorf("a large one: %d %s", code, text)
		}
	}
	for range 2 { // the large ones were not charged as checks
		if code, text := ask(""); code != http.StatusOK {
			t.Errorf("a small one: %d %s", code, text)
		}
	}
	if code, text := ask(""); code != http.StatusTooManyRequests || !strings.Contains(text, "2 checks a second") {
		t.Errorf("a third one: %d %s", code, text)
	}
	w.now = w.now.Add(time.Second)
	for i, want := range []int{http.StatusBadRequest, http.StatusBadRequest, http.StatusTooManyRequests} {
		if code, text, _ := w.ask("POST", w.http+"/v1/check/batch", shop, `{"checks": [`); code != want {
			t.Errorf("batch %d that is malformed: %d %s, want %d", i, code, text, want)
		}
	}
	w.now = w.now.Add(time.Second)
	if code, text, _ := w.ask("POST", w.http+"/v1/check/batch", shop,
		`{"checks": [`+strings.Repeat(" ", 400)); code != http.StatusTooManyRequests ||
		!strings.Contains(text, "budget of 400 bytes") {
		t.Errorf("a large one that is malformed: %d %s", code, text)
	}
}

// TestBudgetOfStreams: so many streams of an identity are open at a time, and columns are
// charged as checks are.
func TestBudgetOfStreams(t *testing.T) {
	w := newWorld(t, withBudget("checks: 5, streams: 1"))
	shop := w.token("shop")
	open := func() (weirv1.Limiter_CheckStreamClient, error) {
		s, err := w.grpc.CheckStream(w.bearer(shop))
		if err != nil {
			return nil, err
		}
		if err := s.Send(&weirv1.CheckColumns{}); err != nil && !errors.Is(err, io.EOF) { // the server has ended it
			return nil, err
		}
		_, err = s.Recv() // the status, if it has
		return s, err
	}
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open(); status.Code(err) != codes.ResourceExhausted ||
		!strings.Contains(err.Error(), "budget of 1 stream ") {
		t.Errorf("a second stream: %v", err)
	}
	columns := func(n int) *weirv1.DecisionColumns {
		m := &weirv1.CheckColumns{}
		for range n {
			u := w.user()
			m.Keys = append(m.Keys, "/cart"+u...)
			m.PathLengths, m.UserLengths = append(m.PathLengths, 5), append(m.UserLengths, uint32(len(u)))
		}
		if err := first.Send(m); err != nil {
			t.Fatal(err)
		}
		reply, err := first.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	if r := columns(4); r.GetError() != nil || len(r.GetFlags()) != 4 {
		t.Errorf("within the budget: %v", r)
	}
	if r := columns(2); codes.Code(r.GetError().GetCode()) != codes.ResourceExhausted {
		t.Errorf("beyond it: %v", r)
	}
	if r := columns(1); r.GetError() != nil {
		t.Errorf("what is left: %v", r)
	}
	if err := first.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Recv(); err == nil {
		t.Error("the stream goes on")
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, err = open(); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Errorf("after it was closed: %v", err)
	}
}

// TestBudgetOutlivesReload: another file changes the limits, and not what was used.
func TestBudgetOutlivesReload(t *testing.T) {
	w := newWorld(t, withBudget("checks: 5"))
	c := frontend.Credentials{Authorization: []string{"Bearer " + w.token("shop")}}
	find := func() frontend.Caller {
		t.Helper()
		by, err := w.access.Identify(c)
		if err != nil {
			t.Fatal(err)
		}
		return by
	}
	old := find()
	if err := errors.Join(old.Spend(5, 0), old.OpenStream()); err != nil {
		t.Fatal(err)
	}
	w.write("permissions.yaml", withBudget("checks: 7, bytes: 100, streams: 1"))
	if err := w.access.Reload(); err != nil {
		t.Fatal(err)
	}
	by := find()
	if err := by.Spend(3, 0); !errors.Is(err, frontend.ErrBudget) || !strings.Contains(err.Error(), "7 checks") {
		t.Errorf("3 of 2 that are left: %v", err)
	}
	if err := by.OpenStream(); !errors.Is(err, frontend.ErrBudget) {
		t.Errorf("a second stream: %v", err)
	}
	if err := old.Spend(1, 200); !errors.Is(err, nil) && !errors.Is(err, frontend.ErrBudget) {
		t.Errorf("by the old entry: %v", err)
	}
	old.CloseStream()
	if err := by.OpenStream(); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
	w.write("permissions.yaml", permissions)
	if err := w.access.Reload(); err != nil {
		t.Fatal(err)
	}
	if err := find().Spend(1000, 1<<20); err != nil {
		t.Errorf("without a budget: %v", err)
	}
}

// TestBudgetOfKeys: an identity that invents users is refused, over each way to ask, and one
// that comes with those that are known is not.
func TestBudgetOfKeys(t *testing.T) {
	for name, ask := range map[string]func(w *world, users ...string) error{
		"unary": func(w *world, users ...string) error {
			for _, u := range users {
				if _, err := w.grpc.Check(w.bearer(w.token("shop")), &weirv1.CheckRequest{Path: "/cart", User: u}); err != nil {
					return err
				}
			}
			return nil
		},
		"batch": func(w *world, users ...string) error {
			m := &weirv1.CheckBatchRequest{}
			for _, u := range users {
				m.Checks = append(m.Checks, &weirv1.CheckRequest{Path: "/cart", User: u})
			}
			_, err := w.grpc.CheckBatch(w.bearer(w.token("shop")), m)
			return err
		},
		"columns": func(w *world, users ...string) error {
			s, err := w.grpc.CheckStream(w.bearer(w.token("shop")))
			if err != nil {
				return err
			}
			m := &weirv1.CheckColumns{}
			for _, u := range users {
				m.Keys = append(m.Keys, "/cart"+u...)
				m.PathLengths, m.UserLengths = append(m.PathLengths, 5), append(m.UserLengths, uint32(len(u)))
			}
			if err := s.Send(m); err != nil {
				return err
			}
			out, err := s.Recv()
			if err == nil && out.GetError() != nil {
				err = status.Error(codes.Code(out.GetError().GetCode()), out.GetError().GetMessage())
			}
			return err
		},
		"http": func(w *world, users ...string) error {
			for _, u := range users {
				code, text, _ := w.ask("POST", w.http+"/v1/check", w.token("shop"), `{"path": "/cart", "user": "`+u+`"}`)
				if code == http.StatusTooManyRequests && strings.Contains(text, "budget") {
					return status.Error(codes.ResourceExhausted, text)
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, withBudget("keys: 3"))
			known := []string{w.user(), w.user(), w.user()}
			if err := ask(w, known...); err != nil {
				t.Fatal(err)
			}
			if err := ask(w, w.user()); status.Code(err) != codes.ResourceExhausted ||
				!strings.Contains(err.Error(), "3 new keys a second") {
				t.Fatalf("a fourth user: %v", err)
			}
			w.now = w.now.Add(time.Second)
			for range 5 {
				if err := ask(w, known...); err != nil {
					t.Fatalf("users that are known: %v", err)
				}
			}
		})
	}
}
