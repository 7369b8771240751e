// Package route has the life of a call: a check, refund, reset or explanation that a
// caller of this node began. A [Call] is sent to the owner of its keys, or to its heir if
// the owner does not answer; keys of several owners are asked about in parts (fan-out);
// and if no member answers before the deadline, the policy of the rule does. [Router]
// holds the calls under way.
//
// The package knows neither locks of partitions nor how this node decides: it asks its
// [Places] who owns a key, and hands a [Request] to its [Node] to be decided here.
package route
