package weirwire_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// batch is the memory of requests, as a server has it.
type batch struct {
	requests []limiter.Request
	filler   weirwire.Filler
}

func (b *batch) grow(n int) {
	b.filler.Forget()
	if n > len(b.requests) {
		b.requests = make([]limiter.Request, n)
	}
}

func (b *batch) fill(m *weirv1.CheckColumns, n int, alike *limiter.Request) {
	if n > len(b.requests) {
		b.grow(n)
	}
	b.filler.Fill(b.requests[:n], m, alike)
}

// filled turns a message into the requests of a batch.
func filled(b *batch, m *weirv1.CheckColumns) (int, error) {
	n, err := weirwire.ColumnsLen(m)
	if err == nil {
		alike := weirwire.AlikeOf(m)
		b.fill(m, n, &alike)
	}
	return n, err
}

func TestColumnsBecomeRequests(t *testing.T) {
	var b batch
	n, err := filled(&b, &weirv1.CheckColumns{
		Keys:          []byte("/townsada10.0.0.7devGETgold" + "/\xffbobPOST"),
		PathLengths:   []uint32{6, 2},
		UserLengths:   []uint32{3, 3},
		IpLengths:     []uint32{8, 0},
		GroupLengths:  []uint32{3, 0},
		MethodLengths: []uint32{3, 4},
		Attributes:    []*weirv1.AttributeColumn{{Name: "plan", Lengths: []uint32{4, 0}}},
		Costs:         []int64{5, -7},
		RuleCosts:     []uint32{0},
		Rule:          "towns",
		Ids:           []byte("\xfe7"),
		IdLengths:     []uint32{0, 2},
		IdTtlUs:       5000,
		IdsOptional:   true,
	})
	if err != nil || n != 2 {
		t.Fatalf("%d requests, %v", n, err)
	}
	want := []limiter.Request{
		{Path: "/towns", User: "ada", IP: "10.0.0.7", Group: "dev", Method: "GET",
			Attributes: map[string]string{"plan": "gold"}, Rule: "towns", IDOptional: true},
		{Path: "/\xff", User: "bob", Method: "POST", Cost: limiter.Units(-7), Rule: "towns", ID: "\xfe7",
			IDTTL: 5 * time.Millisecond, IDOptional: true},
	}
	if !reflect.DeepEqual(b.requests[:2], want) {
		t.Errorf("got  %+v\nwant %+v", b.requests[:2], want)
	}

	// A batch contains nothing of an earlier one.
	b.requests[0].Tenant, b.requests[1].LimitKeys = "shop", [][]string{{"user"}}
	n, err = filled(&b, &weirv1.CheckColumns{Costs: []int64{1, 1}, Attributes: []*weirv1.AttributeColumn{{Name: "b"}}})
	if err != nil || n != 2 {
		t.Fatalf("%d requests, %v", n, err)
	}
	for i := range 2 {
		if want := (limiter.Request{Cost: limiter.Units(1)}); !reflect.DeepEqual(b.requests[i], want) {
			t.Errorf("after another batch request %d is %+v", i, b.requests[i])
		}
	}
}

// TestARequestOfColumnsKeepsNothing sets each field of a request that was used before, such as the tenant of an
// earlier caller. It notices a field that is not set anew.
func TestARequestOfColumnsKeepsNothing(t *testing.T) {
	values := limiter.Request{
		Path: "p", Method: "m", User: "u", IP: "i", Group: "g", Attributes: map[string]string{}, Cost: limiter.Units(0),
		Rule:   "r",
		Limits: []*limiter.Limit{}, LimitKeys: [][]string{}, ID: "7", IDTTL: 1, IDOptional: true, Hold: 1, Tenant: "t",
		Lent: true, Rate: 1, Fast: true, Caller: "c", Scope: noRule{},
	}
	of := reflect.ValueOf(values)
	for i := range of.NumField() {
		name := of.Type().Field(i).Name
		if of.Field(i).IsZero() {
			t.Fatalf("field %s has no value here: give it one", name)
		}
		for _, alike := range []limiter.Request{{}, {Rule: "towns", Tenant: "shop", Caller: "a", Hold: 5, IDOptional: true,
			Lent: true, Scope: noRule{}}} {
			var b batch
			m := &weirv1.CheckColumns{Keys: []byte("/a"), PathLengths: []uint32{2}}
			b.fill(m, 1, &alike)
			b.grow(1) // as whoever writes requests does
			reflect.ValueOf(&b.requests[0]).Elem().Field(i).Set(of.Field(i))
			b.fill(m, 1, &alike)
			want := alike
			want.Path = "/a"
			if !reflect.DeepEqual(b.requests[0], want) {
				t.Errorf("after %s was set: got %+v, want %+v", name, b.requests[0], want)
			}
		}
	}
}

// TestRequestsThatAreAlike has messages of all kinds follow each other in one batch. Each becomes the requests
// that it becomes in a new one.
func TestRequestsThatAreAlike(t *testing.T) {
	scopes := []limiter.Scope{nil, new(oneRule), new(oneRule), noRule{}}
	rng := rand.New(rand.NewPCG(1, 2))
	var used batch
	kept := 0
	for range 20_000 {
		n := 1 + rng.IntN(3)
		m := &weirv1.CheckColumns{}
		column := func(lengths *[]uint32) {
			for range n {
				*lengths = append(*lengths, uint32(rng.IntN(3)))
				m.Keys = append(m.Keys, "abcdef"[rng.IntN(4):][:(*lengths)[len(*lengths)-1]]...)
			}
		}
		column(&m.PathLengths)
		if rng.IntN(8) > 0 {
			column(&m.UserLengths)
		}
		switch rng.IntN(24) {
		case 0:
			column(&m.IpLengths)
		case 1:
			column(&m.GroupLengths)
		case 2:
			column(&m.MethodLengths)
		case 3:
			m.IdTtlUs, m.Ids, m.IdLengths = 5000, []byte("777")[:n], []uint32{1, 1, 1}[:n]
		case 4:
			m.Costs = []int64{4, 5, 6}[:n]
		case 5:
			m.Costs, m.RuleCosts = []int64{4, 5, 6}[:n], []uint32{0}
		case 6:
			a := &weirv1.AttributeColumn{Name: "plan"}
			column(&a.Lengths)
			m.Attributes = append(m.Attributes, a)
		case 7: // another kind of message, such as CheckBatch
			used.grow(2)
			used.requests[rng.IntN(2)] = limiter.Request{Path: "/x", Cost: limiter.Units(9), Tenant: "other",
				Limits: []*limiter.Limit{nil}}
		}
		alike := limiter.Request{}
		if rng.IntN(4) == 0 {
			alike.Rule = []string{"", "towns"}[rng.IntN(2)]
			alike.Hold = time.Duration(rng.IntN(2))
			alike.IDOptional = rng.IntN(2) == 0
			alike.Tenant, alike.Caller = []string{"", "a", "b"}[rng.IntN(3)], []string{"", "c"}[rng.IntN(2)]
		}
		alike.Scope = scopes[rng.IntN(8)%len(scopes)]
		kept += min(used.filler.Kept(&alike), n)
		var fresh batch
		used.fill(m, n, &alike)
		fresh.fill(m, n, &alike)
		if !reflect.DeepEqual(used.requests[:n], fresh.requests[:n]) {
			t.Fatalf("%v with %+v:\ngot  %+v\nwant %+v", m, alike, used.requests[:n], fresh.requests[:n])
		}
	}
	if kept < 1000 {
		t.Errorf("%d requests were kept", kept)
	}
}

// oneRule is a scope that can be compared. It is not of size 0: pointers to such may be equal.
type oneRule struct{ _ byte }

func (*oneRule) Permits(string) bool { return true }

// noRule is a scope that cannot be compared, and permits nothing.
type noRule []string

func (noRule) Permits(string) bool { return false }

// badColumns are invalid messages with their errors.
func badColumns() map[string]*weirv1.CheckColumns {
	many := make([]*weirv1.AttributeColumn, weirwire.MaxAttributes+1)
	for i := range many {
		many[i] = &weirv1.AttributeColumn{Name: fmt.Sprint(i)}
	}
	return map[string]*weirv1.CheckColumns{
		"path_lengths has 2 elements and user_lengths 1": {Keys: []byte("ab"), PathLengths: []uint32{1, 1},
			UserLengths: []uint32{0}},
		"user_lengths has 1 elements and costs 2": {Keys: []byte("a"), UserLengths: []uint32{1}, Costs: []int64{1, 1}},
		`ip_lengths has 1 elements and attribute "x" 3`: {IpLengths: []uint32{0},
			Attributes: []*weirv1.AttributeColumn{{Name: "x", Lengths: []uint32{0, 0, 0}}}},
		`attribute "x" has two columns`:          {Attributes: []*weirv1.AttributeColumn{{Name: "x"}, {Name: "x"}}},
		"column 0 of the attributes has no name": {Attributes: []*weirv1.AttributeColumn{{}}},
		"17 columns of attributes; at most 16":   {Attributes: many},
		"ids has 2 bytes, which is not what":     {Ids: []byte("ab"), IdLengths: []uint32{1, 2}},
		"ids has 3 bytes, which is not what":     {Ids: []byte("abc"), IdLengths: []uint32{1, 1}},
		"path_lengths has 2 elements and id_lengths 1": {Keys: []byte("ab"), PathLengths: []uint32{1, 1},
			IdLengths: []uint32{0}},
		"keys has 2 bytes, fewer than the lengths":  {Keys: []byte("ab"), PathLengths: []uint32{2, 1}},
		"keys has 1 bytes, fewer than the lengths":  {Keys: []byte("a"), PathLengths: []uint32{1<<32 - 1, 1<<32 - 1}},
		"keys has 3 bytes, 1 more than the lengths": {Keys: []byte("abc"), PathLengths: []uint32{2, 0}},
		"keys has 1 bytes, 1 more":                  {Keys: []byte("a")},
		"rule_costs names check 1 of 1": {PathLengths: []uint32{0}, Costs: []int64{1},
			RuleCosts: []uint32{1}},
		"the batch has 1001 checks; at most 1000": {Costs: make([]int64, weirwire.MaxBatch+1)},
	}
}

func TestColumnsThatMakeNoSense(t *testing.T) {
	for want, m := range badColumns() {
		var b batch
		if _, err := filled(&b, m); !errors.Is(err, limiter.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// allocated returns how many bytes f allocates, including those that the rest of the
// program allocates meanwhile.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// FuzzColumns: whatever bytes come, they are refused or become requests whose
// strings are the keys, each byte once.
func FuzzColumns(f *testing.F) {
	add := func(m *weirv1.CheckColumns) {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	for _, m := range badColumns() {
		add(m)
	}
	add(&weirv1.CheckColumns{Id: 7, Keys: []byte("/townsada/townsbob"), PathLengths: []uint32{6, 6},
		UserLengths: []uint32{3, 3}, EveryLimit: true})
	add(&weirv1.CheckColumns{Keys: []byte("gold"),
		Attributes: []*weirv1.AttributeColumn{{Name: "plan", Lengths: []uint32{4, 0}}}, Costs: []int64{1, 2},
		RuleCosts: []uint32{1}, Peek: true})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var m weirv1.CheckColumns
		var refused, read error
		bytes := allocated(func() {
			if _, refused = weirwire.CountColumns(raw); refused == nil {
				read = weirwire.Unmarshal(raw, &m)
			}
		})
		if bound := 16*len(raw) + 2<<20; bytes > bound {
			t.Fatalf("%d bytes were allocated for %d, more than %d", bytes, len(raw), bound)
		}
		if errors.Is(refused, weirwire.ErrWire) {
			read, refused = refused, nil
		}
		var stock weirv1.CheckColumns
		unread := proto.Unmarshal(raw, &stock)
		if refused == nil && (read == nil) != (unread == nil) {
			t.Fatalf("%v, protobuf says %v", read, unread)
		}
		if read != nil {
			return
		}
		var b batch
		if refused != nil {
			// A message that is refused before decoding cannot be decoded, or would be
			// refused afterwards. The exception is rule_costs, of which a check has one
			// at most.
			if unread != nil {
				return
			}
			if _, err := filled(&b, &stock); err == nil && len(stock.RuleCosts) <= weirwire.MaxBatch {
				t.Fatalf("refused: %v", refused)
			}
			return
		}
		n, err := filled(&b, &m)
		if err != nil {
			if !errors.Is(err, limiter.ErrInvalid) {
				t.Fatalf("%v wraps no ErrInvalid", err)
			}
			return
		}
		all := ""
		for _, r := range b.requests[:n] {
			all += r.Path + r.User + r.IP + r.Group + r.Method
			for _, a := range m.Attributes {
				all += r.Attributes[a.Name]
			}
		}
		if n > weirwire.MaxBatch || all != string(m.Keys) {
			t.Fatalf("%d requests spell %q of the keys %q", n, all, m.Keys)
		}
	})
}
