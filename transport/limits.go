package transport

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/weirlimit/weir/internal/frontend"
	"github.com/weirlimit/weir/internal/weirwire"
	"github.com/weirlimit/weir/limiter"
)

// limitObject is a limit in JSON, with the spelling of a rules file. Windows and blocks
// are durations in Go's syntax.
type limitObject struct {
	Name          string   `json:"name"`
	Algorithm     string   `json:"algorithm"`
	Limit         int64    `json:"limit"`
	Window        string   `json:"window"`
	Align         string   `json:"align"`
	SubWindows    int      `json:"sub_windows"`
	Coverage      string   `json:"coverage"`
	Weight        *float64 `json:"weight"`
	Rounding      string   `json:"rounding"`
	Burst         int64    `json:"burst"`
	Drip          string   `json:"drip"`
	DripUnits     int64    `json:"drip_units"`
	CountRejected string   `json:"count_rejected"`
	Block         string   `json:"block"`
	Calendar      string   `json:"calendar"`
	Zone          string   `json:"zone"`
	AnchorDay     int      `json:"anchor_day"`
	WeekStart     string   `json:"week_start"`
	At            string   `json:"at"`
	Key           []string `json:"key"`
}

// limitFields returns the names of the fields of a limitObject.
func limitFields() []string {
	return []string{"name", "algorithm", "limit", "window", "align", "sub_windows", "coverage", "weight",
		"rounding", "burst", "drip", "drip_units", "count_rejected", "block", "calendar", "zone", "anchor_day", "week_start",
		"at", "key"}
}

// parseLimits reads the limits of a request into it. If there are any, it returns forbidden, unless that is nil.
func parseLimits(r *limiter.Request, raw json.RawMessage, forbidden error) error {
	if forbidden != nil && hasMore(raw, 0) {
		return forbidden
	}
	if hasMore(raw, limiter.MaxLimits) {
		return moreThan("request", "limits", limiter.MaxLimits)
	}
	var objects []json.RawMessage
	if err := decode("limits", raw, &objects, "an array of limits"); err != nil {
		return err
	}
	r.Limits, r.LimitKeys = make([]*limiter.Limit, len(objects)), nil
	for i, raw := range objects {
		o, err := parseObject(raw)
		if err == nil {
			r.Limits[i], err = o.limit()
		}
		if err != nil {
			return fmt.Errorf("limit %d of the request: %w", i, err)
		}
		weirwire.AddKey(r, i, o.Key)
	}
	return nil
}

func parseObject(raw json.RawMessage) (*limitObject, error) {
	if raw[0] == '"' {
		return nil, invalid(`a limit is an object here, not %s: write {"limit": 5, "window": "1s"}, for example`,
			shorten(raw))
	}
	err := eachField(raw, func(name string, value json.RawMessage) error {
		switch {
		case !slices.Contains(limitFields(), name):
			return unknown("field", name, limitFields())
		case name == "key" && hasMore(value, limiter.MaxKeyParts):
			return moreThan("limit", "parts of its key", limiter.MaxKeyParts)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	o := new(limitObject)
	if err := json.Unmarshal(raw, o); err != nil {
		return nil, wrongType(err)
	}
	return o, nil
}

// wrongType is the error for a field of a limit that has a value of another type.
func wrongType(err error) error {
	e, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return invalid("%v", err)
	}
	want := "a whole number"
	switch {
	case e.Field == "key": // also an element of it
		want = "a list of texts"
	case e.Type.Kind() == reflect.String:
		want = "text in quotes"
	case e.Type.Kind() == reflect.Float64:
		want = "a number"
	}
	is, found := map[string]string{"string": "text", "bool": "true or false", "array": "a list",
		"object": "an object"}[e.Value]
	if !found {
		is = e.Value // such as "number 1.5"
	}
	return invalid("%s must be %s, not %s", e.Field, want, is)
}

func (o *limitObject) limit() (*limiter.Limit, error) {
	s := limiter.Spec{
		Name: o.Name, Limit: o.Limit, SubWindows: o.SubWindows, Burst: o.Burst, DripUnits: o.DripUnits, Zone: o.Zone,
		AnchorDay: o.AnchorDay,
	}
	if o.Weight != nil {
		thousandths := math.Round(*o.Weight * 1000)
		if thousandths < 0 || thousandths > 1000 {
			return nil, invalid("weight %v is out of range: give 0 to 1", *o.Weight)
		}
		s.Weight = new(int(thousandths))
	}
	err := errors.Join(
		named("algorithm", o.Algorithm, &s.Algorithm), named("align", o.Align, &s.Align),
		named("coverage", o.Coverage, &s.Coverage), named("rounding", o.Rounding, &s.Rounding),
		named("drip", o.Drip, &s.Drip), named("count_rejected", o.CountRejected, &s.CountRejected),
		duration("window", o.Window, &s.Window), duration("block", o.Block, &s.Block),
		named("calendar", o.Calendar, &s.Calendar), named("week_start", o.WeekStart, &s.WeekStart),
		timeOfDay(o.At, &s.At))
	if err != nil {
		return nil, err
	}
	if o.Algorithm == limiter.SlidingCounter.String() && s.Calendar != limiter.CalendarNone {
		return nil, invalid("%s has no calendar windows: leave the algorithm out, or write fixed_window", o.Algorithm)
	}
	return limiter.NewLimit(s)
}

// named finds the value of a type by its name. An empty name leaves the default.
func named[T interface {
	~uint8
	String() string
}](what, name string, to *T) error {
	if name == "" {
		return nil
	}
	var names []string
	for v := T(0); v.String() != "unknown"; v++ {
		if v.String() == name {
			*to = v
			return nil
		}
		names = append(names, v.String())
	}
	return unknown(what, name, names)
}

func timeOfDay(text string, to *time.Duration) error {
	if text == "" {
		return nil
	}
	t, err := time.Parse("15:04", text)
	if err != nil {
		return invalid("at is %s; write a time of day such as 06:00", frontend.Quote(text))
	}
	*to = time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute
	return nil
}

func duration(what, text string, to *time.Duration) error {
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return invalid("%s is %s; write a duration such as 1m, 1h30m or 250ms", what, frontend.Quote(text))
	}
	*to = d
	return nil
}
