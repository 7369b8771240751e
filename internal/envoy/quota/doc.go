// Package quota is the protocol of Envoy's rate limit quota service for one stream, as a machine without clock,
// network and locks: reports and instants go in, questions to the owners of counters and actions for Envoy come out.
//
// Envoy admits by itself what it is assigned: a token bucket with a rate, until its time to live is over. An
// assignment is a slice that the owner of the counter has lent, see package slices. What Envoy's client does with
// the messages, in its own source, decides several things here:
//
//   - The time that a report covers is in whole seconds, and often 0. So demand is measured with the server's
//     clock.
//   - Of a time to live only whole seconds are read, and one below a second is over at once. So it is 2 s at least.
//   - An interval of filling is read in whole seconds, and 0 is divided by. Two assignments that differ only there
//     are taken for equal. So it is always 1 s, and the number of tokens varies.
//   - Where an assignment takes the place of another, the new bucket is as full, in proportion, as the old one was.
//     After an expiry, or after a rule for all requests, it begins full. So the size of a bucket stays while it is
//     renewed, and what begins full is another slice, whose burst the owner charges anew.
//   - A client that has no assignment does as its configuration says, which is to allow all unless that says
//     otherwise. So while nothing is assigned, it is told to deny.
package quota
