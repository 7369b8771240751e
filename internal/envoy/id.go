package envoy

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"unicode/utf8"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirlimit/weir/limiter"
)

// maxID is the longest id of a request, in bytes. What is appended to it for each charge must
// fit the bound of the node.
const maxID = limiter.MaxIDBytes - len("#127+")

// idOf returns the id of a request, "" if it has none. It stands under a name in an entry of
// one or more descriptors, or in a header of the call. Clients of Envoy may have chosen it: of one
// that a node does not take, and of several, it is a hash, since Envoy would let the request of an error pass.
func idOf(name string, in *rls.RateLimitRequest, by *asker) string {
	if name == "" {
		return ""
	}
	var found []string
	for _, d := range in.GetDescriptors() {
		for _, e := range d.GetEntries() {
			if e.GetKey() == name {
				found = append(found, e.GetValue())
			}
		}
	}
	if found == nil && by.header != nil {
		found = by.header(name)
	}
	found = slices.DeleteFunc(found, func(v string) bool { return v == "" })
	slices.Sort(found)
	switch found = slices.Compact(found); {
	case len(found) == 0:
		return ""
	case len(found) == 1 && len(found[0]) <= maxID && utf8.ValidString(found[0]):
		return found[0]
	}
	hash := sha256.New()
	for _, v := range found {
		one := sha256.Sum256([]byte(v))
		hash.Write(one[:])
	}
	return "sha256:" + base64.RawURLEncoding.EncodeToString(hash.Sum(nil))
}

// part returns the id of descriptor i of a request: two descriptors of a request may be
// alike, and both count.
func part(id string, i int) string {
	if id == "" || i == 0 {
		return id
	}
	return id + "#" + strconv.Itoa(i)
}

// more returns the id of a second charge for one descriptor.
func more(id string) string {
	if id == "" {
		return ""
	}
	return id + "+"
}
