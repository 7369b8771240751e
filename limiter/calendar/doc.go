// Package calendar computes where calendar windows begin and end: the days, weeks,
// months, quarters and years of a time zone, and its minutes and hours.
//
// It is the only place that does. Memory, clusters and Redis all take the bounds from
// here, as numbers, so they agree to the microsecond.
//
// # Time zones
//
// The rules of time zones change several times a year. The package has its own copy of
// the IANA time zone database, zoneinfo.zip, and never reads that of the machine: two
// nodes with the same program have the same windows. [Version] is the release of the
// copy. scripts/tzdata.sh replaces it by the one of the Go installation.
//
// # Where a window begins
//
// A day, week, month, quarter or year begins at a date and a time of day. Its beginning
// is the first instant at which the zone's clocks show that date and time, or a later
// one. So a time that the clocks skip is the first instant after the gap, and of a time
// that they show twice the first one counts. A window is as long as the time between two
// beginnings: a day has 23, 24 or 25 hours, and in a few zones others.
//
// A minute or an hour begins when the clocks show a full one, and when they are moved.
// So none is longer than a minute or an hour. When an hour is shown twice there are two
// windows.
package calendar
