package front

import (
	"net/url"
	"strings"
)

// maxBaggage bounds the baggage that is read, in bytes of all fields. It is the bound up to
// which the W3C demands that baggage is passed on.
const maxBaggage = 8 << 10

// Baggage returns the value of a name in the fields baggage of a request, by the W3C's
// Baggage: decoded, and without properties. Of several values the last one counts, as in
// OpenTelemetry. It is empty if there is none, if it cannot be decoded, or if the fields are
// longer than 8 KiB.
func Baggage(fields []string, name string) (value string) {
	size := 0
	for _, f := range fields {
		if size += len(f); size > maxBaggage {
			return ""
		}
	}
	for _, f := range fields {
		for member := range strings.SplitSeq(f, ",") {
			key, rest, ok := strings.Cut(member, "=")
			if !ok || strings.Trim(key, " \t") != name {
				continue
			}
			text, _, _ := strings.Cut(rest, ";")
			value, _ = url.PathUnescape(strings.Trim(text, " \t")) // "" with an error
		}
	}
	return value
}
