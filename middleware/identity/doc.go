// Package identity tells who sends a request by what cannot be forged: a signed
// session ([Sessions]) or a signed token ([Tokens]).
//
// A rate limiter has one question only: by whose counter is this request to be
// counted? So there is one answer to anything that is unsigned, altered,
// expired or not understood: it is nobody's, an error that wraps
// [ErrUnverified], and the middlewares count such a request as anonymous, by
// its address. It is neither let go nor counted as the user that it claims.
//
// That is no authentication of requests: whether an anonymous one may pass at
// all is for the service to say.
package identity
