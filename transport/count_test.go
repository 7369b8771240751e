package transport

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/limiter"
	weirv1 "github.com/weirlimit/weir/proto/weir/v1"
)

// allocated returns how many bytes f allocates, including those that the rest of the
// program allocates meanwhile.
func allocated(f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

// The numbers of fields in weir.proto.
const (
	requestAttributes, requestLimits       = 6, 9
	columnsMethodLength, columnsAttributes = 7, 8
	columnsCosts, columnsRuleCosts         = 9, 10
	attributeLengths, batchChecks          = 2, 1
)

// slack is what a message may allocate beside what its bytes do: the memory of a batch,
// which is used again, and what the rest of a test does.
const slack = 2 << 20

// empties returns n empty messages in a field.
func empties(field protowire.Number, n int) []byte {
	one := protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), nil)
	return bytes.Repeat(one, n)
}

// packed returns n zeros in a packed field.
func packed(field protowire.Number, n int) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), make([]byte, n))
}

// within returns a message as the only field of another.
func within(field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), message)
}

// TestPartsAreCountedFirst: a message of 1 MiB that stands for hundreds of megabytes is
// refused with what is wrong with it, and nothing is built of it.
func TestPartsAreCountedFirst(t *testing.T) {
	const most, half = 1 << 20, 1 << 19
	s := newService(Options{Decider: &stub{}, AllowReset: true, AllowRequestLimits: true})
	ctx := t.Context()
	check := func(in []byte) error {
		_, err := s.serveCheck(ctx, decoding(string(in)))
		return err
	}
	explain := func(in []byte) error {
		_, err := full(s, "Explain", s.explain)(ctx, decoding(string(in)))
		return err
	}
	reset := func(in []byte) error {
		_, err := full(s, "Reset", s.reset)(ctx, decoding(string(in)))
		return err
	}
	batch := func(in []byte) error {
		out, err := serveBytes(t, s, in)
		if err == nil {
			err = errors.New(out.Results[0].GetError().GetMessage())
		}
		return err
	}
	columns := func(in []byte) error {
		m := columnsMessage{hold: listen.Hold{Room: &s.room}}
		m.readBytes(in)
		return m.refused
	}
	f := newFront(s, func() error { return nil }, &Options{})
	post := func(path string) func([]byte) error {
		return func(in []byte) error {
			r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(in))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			f.ServeHTTP(w, r)
			return errors.New(w.Body.String())
		}
	}
	list := func(one string, n int) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }
	var names []string
	for i := range 1 << 16 {
		names = append(names, fmt.Sprintf(`"%d":""`, i))
	}
	deep := strings.Repeat("[", half) + strings.Repeat("]", half)
	for name, c := range map[string]struct {
		send func([]byte) error
		in   []byte
		want string
	}{
		"limits of a check":     {check, empties(requestLimits, half), "524288 limits; at most 16"},
		"attributes of a check": {check, empties(requestAttributes, half), "524288 attributes; at most 16"},
		"limits to explain":     {explain, empties(requestLimits, half), "524288 limits; at most 16"},
		"attributes of a reset": {reset, empties(requestAttributes, half), "524288 attributes; at most 16"},
		"limits in a batch": {batch, within(batchChecks, empties(requestLimits, half-8)),
			"524280 limits; at most 16"},
		"checks of a batch":     {batch, empties(batchChecks, half), "524288 checks; at most 1000"},
		"columns of attributes": {columns, empties(columnsAttributes, half), "17 columns of attributes"},
		"elements of an attribute": {columns, within(columnsAttributes, packed(attributeLengths, most-16)),
			"1048560 checks; at most 1000"},
		"attribute, unpacked": {columns, within(columnsAttributes,
			bytes.Repeat([]byte{attributeLengths << 3, 0}, half-8)), "1001 checks; at most 1000"},
		"lengths":           {columns, packed(columnsMethodLength, most-8), "1048568 checks; at most 1000"},
		"costs":             {columns, packed(columnsCosts, most-8), "1048568 checks; at most 1000"},
		"costs, unpacked":   {columns, bytes.Repeat([]byte{columnsCosts << 3, 0}, half), "1001 checks; at most 1000"},
		"costs of the rule": {columns, packed(columnsRuleCosts, most-8), "1048568 checks; at most 1000"},
		"limits in JSON": {post("/v1/check"), []byte(`{"limits":[` + list("{}", most/4) + `]}`),
			"more than 16 limits"},
		"attributes in JSON": {post("/v1/check"), []byte(`{"attributes":{` + strings.Join(names, ",") + `}}`),
			"more than 16 attributes"},
		"checks in JSON": {post("/v1/check/batch"), []byte(`{"checks":[` + list("{}", most/4) + `]}`),
			"more than 1000 checks"},
		"depth of JSON": {post("/v1/check"),
			[]byte(`{"attributes":` + deep[:20000] + deep[len(deep)-20000:] + `}`), "exceeded max depth"},
		"unknown fields in a batch": {batch, within(batchChecks, packed(99, most-16)), ""},
	} {
		var err error
		n := allocated(func() { err = c.send(c.in) })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %.200v, want %q", name, err, c.want)
		}
		if bound := 8*len(c.in) + slack; n > bound {
			t.Errorf("%s: %d bytes were allocated for %d, more than %d", name, n, len(c.in), bound)
		}
	}
	if used := s.room.InUse(); used != 0 {
		t.Errorf("%d bytes of room were not given back", used)
	}
}

// A full batch of requests with all their parts takes no more than its weight.
func TestWeights(t *testing.T) {
	m := &weirv1.CheckBatchRequest{}
	for range MaxBatch {
		q := &weirv1.CheckRequest{Attributes: map[string]string{}}
		for i := range MaxAttributes {
			q.Attributes[fmt.Sprint(i)] = ""
		}
		for range limiter.MaxLimits {
			q.Limits = append(q.Limits, &weirv1.Limit{})
		}
		m.Checks = append(m.Checks, q)
	}
	in, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	h := listen.Hold{Room: &listen.Room{Most: defaultDecoding}}
	var tn turn
	n := allocated(func() { _, err = tn.readBatch(string(in), &h) })
	if err != nil || int64(n) > h.Room.InUse() {
		t.Errorf("%v; %d bytes were allocated, and the weight is %d", err, n, h.Room.InUse())
	}
	h.Release()
	h.Room.Most = weightOf(len(in), MaxBatch, MaxBatch) // not for all parts
	if _, err := tn.readBatch(string(in), &h); !errors.Is(err, listen.ErrRoom) {
		t.Errorf("parts need room: %v", err)
	}
}
