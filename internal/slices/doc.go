// Package slices divides the rate of a key among those that hold slices of it: a slice is a rate that its holder
// admits by itself until an instant. What is held is counted by the owner's table; this package decides how much
// each holder is assigned.
package slices
