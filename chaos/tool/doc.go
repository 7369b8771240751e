// Package tool is what the programs of chaos have in common: what ends them, and
// their temporary directories, which are gone when they are, or when the next one
// starts.
package tool
