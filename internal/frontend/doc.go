// Package frontend is what the servers of all protocols have in common: who a caller is, what it may do and how much,
// who decides, and who is told of it. A protocol's package turns its messages into calls of a [Session] and back.
//
// A Session takes a message through the same steps in every protocol: [Frontend.Identify], [Session.Spend],
// [Session.Admit], one of the methods that decide, and [Session.Account]. The methods that decide charge the caller's
// budget of new keys, so no protocol can forget it.
package frontend
