// Package middleware shows Weir's middleware in frameworks: one small program
// each for chi, gin, echo, fiber, connect and gRPC-Gateway. They are a module of
// their own, so that nobody who uses Weir gets the frameworks along with it. For
// net/http and grpc-go see the examples of the packages httplimit and grpclimit.
//
// Each program takes its rules from [Rules], answers /towns and /login, and has
// a test that asks it until it says 429. That of connect answers a procedure by
// rules of its own.
package middleware

// Rules are the rules of all examples.
const Rules = `
version: 1
defaults: {algorithm: fixed_window}
rules:
  - name: login
    match: {path: "^/login/?$", method: [POST]}
    key: [ip]
    limits: [{limit: 1, window: minute, block: 5m}]
  - name: towns
    match: {path: "^/towns/"}
    key: [path, user]
    limits: [2/minute, 100/hour]
`
