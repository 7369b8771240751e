// Package audit writes what must be accounted for, as lines of JSON: who changed something
// at a node, and who was refused. It implements [frontend.Auditor].
package audit
