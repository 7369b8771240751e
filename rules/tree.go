package rules

import (
	"bytes"

	"github.com/weirlimit/weir/internal/yamltree"
)

// node is one value of a rules file.
type node = yamltree.Node

// maxFileBytes bounds the size of a rules file.
const maxFileBytes = 1 << 20

// maxBytes returns the bound of a file: one with files of numbers in it, see [Expand], may be larger
// by their texts.
func maxBytes(data []byte) int {
	most := maxFileBytes
	for {
		_, after, found := bytes.Cut(data, []byte(numbersField))
		if !found {
			return min(most, maxExpanded)
		}
		n := bytes.IndexAny(after, "\"\n")
		if n < 0 {
			n = len(after)
		}
		most, data = most+n, after[n:]
	}
}

// readTree parses a file. It returns nil if there is nothing to decode; problems have
// then been reported.
func readTree(data []byte, p *problems) *node {
	return yamltree.Read(data, yamltree.Form{
		Name: "a rules file", Bytes: maxBytes(data),
		Depth: 10, Keys: 256, // a rules file needs 6 levels
		Shared:  `; what rules share goes under "defaults"`,
		LeftOut: `; for an attribute of any value write {not: ""}`,
		Empty:   `; to have no rules at all write "rules: []"`,
	}, p.addAt)
}
