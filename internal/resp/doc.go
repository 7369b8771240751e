// Package resp serves the Redis protocol, RESP2 and RESP3, to clients that would limit
// with Redis: CL.THROTTLE of redis-cell, the scripts of redis_rate, and commands of Weir's
// own. Each connection has one goroutine, which reads what the client has sent, decides it
// as one batch, and writes the replies together.
//
// What a client sends is bounded before memory is taken for it, see parser. Nothing here
// keeps a key: counters belong to the node.
package resp
