package calendar

import (
	"archive/zip"
	"bytes"
	_ "embed" // for the two files below
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

//go:embed zoneinfo.zip
var zoneinfo []byte

//go:embed version.txt
var version string

// Version returns the release of the embedded time zone database, such as "2025c".
// Nodes with different releases may differ about the bounds of a window.
func Version() string { return strings.TrimSpace(version) }

type zone struct {
	// location is the zone as package time has it.
	location *time.Location
	// periods follow each other. Each differs from the one before it in its offset.
	periods []period
}

// period is a time in which a zone has one offset, in seconds. It ends where the next
// one begins.
type period struct{ from, until, offset int64 }

// The periods of a zone reach from 1960 to 2200. Before and after, the offset is that of
// the first and of the last one.
const (
	firstSecond = -315_619_200
	lastSecond  = 7_258_118_400
	always      = 1 << 60
)

func newZone(location *time.Location) *zone {
	z := &zone{location: location}
	for at := int64(firstSecond); ; {
		t := time.Unix(at, 0).In(location)
		_, offset := t.Zone()
		n := len(z.periods)
		switch {
		case n == 0:
			z.periods = append(z.periods, period{-always, always, int64(offset)})
		case z.periods[n-1].offset != int64(offset):
			z.periods[n-1].until = at
			z.periods = append(z.periods, period{at, always, int64(offset)})
		}
		_, until := t.ZoneBounds()
		if until.IsZero() || until.Unix() >= lastSecond {
			return z
		}
		// On the last day of a leap year package time may give an end that has passed.
		at = max(until.Unix(), at+3600)
	}
}

// at returns the period that contains an instant, in seconds since the epoch.
func (z *zone) at(t int64) period {
	i, j := 0, len(z.periods)-1
	for i < j {
		if m := (i + j) / 2; t < z.periods[m].until {
			j = m
		} else {
			i = m + 1
		}
	}
	return z.periods[i]
}

type entry struct {
	number int // from 0, without gaps
	load   func() (*zone, error)
}

// index finds the zones of the database by their names. It is made from the embedded
// file when a zone is first asked for, and never changes.
var index = sync.OnceValue(func() map[string]*entry {
	zones := make(map[string]*entry)
	files, err := zip.NewReader(bytes.NewReader(zoneinfo), int64(len(zoneinfo)))
	if err != nil {
		return zones // not reached: a test reads all zones
	}
	for _, f := range files.File {
		if !strings.HasSuffix(f.Name, "/") {
			zones[f.Name] = &entry{number: len(zones), load: sync.OnceValues(func() (*zone, error) { return load(f) })}
		}
	}
	return zones
})

func load(f *zip.File) (*zone, error) {
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	location, err := time.LoadLocationFromTZData(f.Name, data)
	if err != nil {
		return nil, err
	}
	return newZone(location), nil
}

// UTC is the name of the default zone.
const UTC = "UTC"

// find returns the zone with a name. The error names the zone.
func find(name string) (*zone, error) {
	if name == "" || name == UTC {
		return newZone(time.UTC), nil
	}
	e := index()[name]
	if e == nil {
		return nil, fmt.Errorf("there is no time zone %.100q in the time zone database %s: give an IANA name, such as "+
			"Europe/Berlin or UTC", name, Version())
	}
	return e.load()
}

// Known reports whether there is a zone with an IANA name, such as "Europe/Berlin".
func Known(name string) bool {
	_, err := find(name)
	return err == nil && name != ""
}
