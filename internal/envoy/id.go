package envoy

import (
	"strconv"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/metadata"

	"github.com/weirlimit/weir/limiter"
)

// maxID is the longest id of a request, in bytes. What is appended to it for each charge must
// fit the bound of the node.
const maxID = limiter.MaxIDBytes - len("#127+")

// idOf returns the id of a request, "" if it has none. It stands under a name in an entry of
// one or more descriptors, or in a header of the call.
func idOf(name string, in *rls.RateLimitRequest, by *asker) (string, error) {
	if name == "" {
		return "", nil
	}
	var found []string
	for _, d := range in.GetDescriptors() {
		for _, e := range d.GetEntries() {
			if e.GetKey() == name {
				found = append(found, e.GetValue())
			}
		}
	}
	if found == nil {
		found = by.header(name)
	}
	id := ""
	for _, v := range found {
		switch {
		case len(v) > maxID:
			return "", invalid("the id of the request, in %q, has %d bytes; at most %d are allowed", name, len(v), maxID)
		case id != "" && v != id:
			return "", invalid("the request has two ids in %q: give one, or the same everywhere", name)
		}
		id = v
	}
	return id, nil
}

// header returns the values of a header of the call. The asker may be nil.
func (a *asker) header(name string) []string {
	switch {
	case a == nil:
		return nil
	case a.ofGRPC == nil:
		return a.ofHTTP.Header.Values(name)
	}
	return metadata.ValueFromIncomingContext(a.ofGRPC, name)
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
