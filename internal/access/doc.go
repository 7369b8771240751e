// Package access reads a permissions file: who the callers of a node are, which tenant
// each belongs to, and what it may do. It implements [frontend.Access].
package access
