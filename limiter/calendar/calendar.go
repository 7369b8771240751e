package calendar

import "sync/atomic"

// Unit is the unit of a calendar. Its zero value is none.
type Unit uint8

// The units.
const (
	None Unit = iota
	Minute
	Hour
	Day
	Week
	Month
	Quarter
	Year
)

// Spec describes a calendar. It is comparable: equal specs have equal windows.
type Spec struct {
	Unit Unit
	// AnchorDay is the day on which a month, or the first month of a quarter or year,
	// begins: 1 to 31. In a shorter month it is the last day.
	AnchorDay uint8
	// WeekStart is the day on which a week begins, 0 for Monday to 6 for Sunday.
	WeekStart uint8
	// At is the time of day at which a day or a longer unit begins, in minutes.
	At uint16
	// Zone is the IANA name of the time zone.
	Zone string
}

// Calendar computes windows. It is safe for concurrent use: the only thing in it that
// changes is a memory of the latest result.
type Calendar struct {
	spec Spec
	zone *zone
	last atomic.Pointer[Bounds]
}

// Bounds are the beginnings of three windows that follow each other, and the end of the
// third, in microseconds since the Unix epoch. They increase strictly.
type Bounds [4]int64

// New returns the calendar of a spec whose numbers are in range. The error says that
// the zone is not known.
func New(s Spec) (*Calendar, error) {
	zone, err := find(s.Zone)
	if err != nil {
		return nil, err
	}
	return &Calendar{spec: s, zone: zone}, nil
}

// Window returns the window that contains an instant: its first instant, and the first
// one after it. It allocates only if it did not compute that window, or a neighbour of
// it, the last time.
func (c *Calendar) Window(at int64) (start, end int64) {
	if b := c.last.Load(); b != nil {
		switch {
		case at < b[0] || at >= b[3]:
		case at < b[1]:
			return b[0], b[1]
		case at < b[2]:
			return b[1], b[2]
		default:
			return b[2], b[3]
		}
	}
	b := c.Around(at)
	return b[1], b[2]
}

// Around returns the bounds of the window that contains an instant, which is the second
// one, and of its neighbours.
func (c *Calendar) Around(at int64) Bounds {
	if b := c.last.Load(); b != nil && b[1] <= at && at < b[2] {
		return *b
	}
	const micro = 1_000_000
	start, end := c.compute(floorDiv(at, micro))
	before, _ := c.compute(start - 1)
	_, after := c.compute(end)
	b := &Bounds{before * micro, start * micro, end * micro, after * micro}
	c.last.Store(b)
	return *b
}

// compute returns the window of an instant. Here and below, instants are in seconds
// since the epoch: offsets of zones and their changes are whole seconds.
func (c *Calendar) compute(at int64) (start, end int64) {
	switch c.spec.Unit {
	case Minute:
		return c.short(at, 60)
	case Hour:
		return c.short(at, 3600)
	}
	n := c.number(at + c.zone.at(at).offset)
	for start = c.begin(n); start > at; start = c.begin(n) {
		n--
	}
	for end = c.begin(n + 1); end <= at; end = c.begin(n + 1) {
		n, start = n+1, end
	}
	return start, end
}

// short returns the minute or hour that contains an instant.
func (c *Calendar) short(at, length int64) (start, end int64) {
	p := c.zone.at(at)
	start = floorDiv(at+p.offset, length)*length - p.offset
	return max(start, p.from), min(start+length, p.until)
}

// begin returns the beginning of the window with a number.
func (c *Calendar) begin(n int64) int64 {
	return c.first(c.days(n)*secondsOfDay + int64(c.spec.At)*60)
}

const (
	secondsOfDay = 24 * 60 * 60
	// farthest is more than the offset of any zone.
	farthest = 24 * 60 * 60
)

// first returns the first instant at which the zone's clocks show the given date and
// time or a later one. These are given in seconds, as if the zone were UTC.
func (c *Calendar) first(local int64) int64 {
	p := c.zone.at(local - farthest)
	for local-p.offset >= p.until {
		p = c.zone.at(p.until)
	}
	return max(local-p.offset, p.from)
}

// number returns the number of a window that begins near a date and time, which are
// given as in first.
func (c *Calendar) number(local int64) int64 {
	days := floorDiv(local, secondsOfDay)
	switch c.spec.Unit {
	case Day:
		return days
	case Week:
		return floorDiv(days-c.firstWeek(), 7)
	}
	year, month := civil(days)
	switch c.spec.Unit {
	case Month:
		return 12*year + month
	case Quarter:
		return 4*year + month/3
	default:
		return year
	}
}

// days returns the date on which the window with a number begins, in days since the
// epoch.
func (c *Calendar) days(n int64) int64 {
	switch c.spec.Unit {
	case Day:
		return n
	case Week:
		return 7*n + c.firstWeek()
	case Quarter:
		n *= 3
	case Year:
		n *= 12
	}
	first := firstOf(n)
	last := firstOf(n+1) - 1
	return min(first+int64(c.spec.AnchorDay)-1, last)
}

// firstWeek returns the day on which week 0 begins. The epoch was a Thursday.
func (c *Calendar) firstWeek() int64 { return int64(c.spec.WeekStart) - 3 }

// firstOf returns the first day of a month, in days since the epoch. Months are numbered
// from January of year 0. Here years begin in March, so that the leap day is their last.
func firstOf(month int64) int64 {
	month -= 2
	year, inYear := floorDiv(month, 12), month-12*floorDiv(month, 12)
	return 365*year + floorDiv(year, 4) - floorDiv(year, 100) + floorDiv(year, 400) + (153*inYear+2)/5 - 719468
}

// civil returns the year and the month, 0 to 11, of a day.
func civil(days int64) (year, month int64) {
	n := floorDiv(days*12*400, 146097) + 12*1970 // a guess, wrong by less than two months
	for firstOf(n) > days {
		n--
	}
	for firstOf(n+1) <= days {
		n++
	}
	return floorDiv(n, 12), n - 12*floorDiv(n, 12)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
