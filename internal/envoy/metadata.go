package envoy

import (
	"strings"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// metadataOf returns the dynamic metadata of an answer: what was asked, and under "metadata"
// what the files say about the limits that allow the request. Where two limits say different
// things, the first descriptor's holds; maps are merged.
func metadataOf(in *rls.RateLimitRequest, items []item) *structpb.Struct {
	descriptors := make([]any, len(in.GetDescriptors()))
	for i, d := range in.GetDescriptors() {
		descriptors[i] = described(d)
	}
	fields := map[string]any{"domain": valid(in.GetDomain()), "descriptors": descriptors}
	if hits := in.GetHitsAddend(); hits > 0 {
		fields["hitsAddend"] = float64(hits)
	}
	merged := make(map[string]any)
	for i := range items {
		if it := &items[i]; it.limit != nil && !it.limit.Unlimited && (!it.over || it.limit.Shadow) {
			mergeInto(merged, it.limit.Metadata)
		}
	}
	if len(merged) > 0 {
		fields["metadata"] = merged
	}
	out, err := structpb.NewStruct(fields)
	if err != nil {
		return nil // not reached: all values have a form in JSON
	}
	return out
}

// described returns a descriptor as dynamic metadata has it.
func described(d *ratelimit.RateLimitDescriptor) map[string]any {
	entries := make([]any, len(d.GetEntries()))
	for i, e := range d.GetEntries() {
		entries[i] = valid(e.GetKey() + "=" + e.GetValue())
	}
	out := map[string]any{"entries": entries}
	if l := d.GetLimit(); l != nil {
		limit := map[string]any{"requestsPerUnit": float64(l.GetRequestsPerUnit()), "unit": l.GetUnit().String()}
		if n := l.GetUnitMultiplier(); n != nil {
			limit["unitMultiplier"] = float64(n.GetValue())
		}
		out["limit"] = limit
	}
	if hits := d.GetHitsAddend(); hits != nil {
		out["hitsAddend"] = float64(hits.GetValue())
	}
	return out
}

// valid returns a text as UTF-8, at most its first 8 KiB.
func valid(text string) string {
	const most = 8 << 10
	return strings.ToValidUTF8(text[:min(len(text), most)], "\uFFFD")
}

// mergeInto adds the values of from that to lacks. It never changes a map of from.
func mergeInto(to, from map[string]any) {
	for k, v := range from {
		m, isMap := v.(map[string]any)
		had, exists := to[k]
		switch old, both := had.(map[string]any); {
		case isMap && (both || !exists):
			if !both {
				old = make(map[string]any, len(m))
				to[k] = old
			}
			mergeInto(old, m)
		case !exists:
			to[k] = v
		}
	}
}
