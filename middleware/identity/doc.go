// Package identity identifies the sender of a request by something that cannot be
// forged: a signed session ([Sessions]) or a signed token ([Tokens]).
//
// A rate limiter only asks whose counter a request belongs to. So anything that is
// unsigned, altered, expired or not understood has the same result: an error that wraps
// [ErrUnverified]. The middlewares then count the request as anonymous, by its address.
// It is neither let pass uncounted nor counted as the user that it claims to be.
//
// This is not authentication: whether anonymous requests may pass is up to the service.
package identity
