package httplimit

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/weirlimit/weir/limiter"
)

// normalPath returns the one spelling of a request's path that is counted.
//
// Routers disagree on what "/a/../b" is, so any answer here would let a caller
// be counted as one path and served as another; no client but an attacker's
// sends it. An encoded slash stays encoded, since it does not part segments for
// a router, and decoding it would let "/a/..%2Fb" and the like in again.
func normalPath(r *http.Request) (string, error) {
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = decodeButSlash(r.URL.EscapedPath())
	}
	if path == "" {
		return "/", nil // CONNECT, or a URL that is a host alone
	}
	if !clean(path) {
		path = squeeze(path)
	}
	if hasDots(path) {
		return "", fmt.Errorf("%w: the path has \".\" or \"..\" segments, which may mean another path to what is behind", limiter.ErrInvalid)
	}
	return path, nil
}

// clean reports whether there is nothing to squeeze.
func clean(path string) bool {
	return path == "/" || !strings.HasSuffix(path, "/") && !strings.Contains(path, "//")
}

// squeeze makes several slashes one and drops those at the end.
func squeeze(path string) string {
	b := make([]byte, 0, len(path))
	for i := range len(path) {
		if path[i] != '/' || len(b) == 0 || b[len(b)-1] != '/' {
			b = append(b, path[i])
		}
	}
	if len(b) > 1 && b[len(b)-1] == '/' {
		b = b[:len(b)-1]
	}
	return string(b)
}

// hasDots reports whether a segment is "." or "..", where a slash that is still
// encoded, and a backslash, which some file servers take for a slash, part
// segments too.
func hasDots(path string) bool {
	for at := 0; ; {
		i := strings.IndexByte(path[at:], '.')
		if i < 0 {
			return false
		}
		from := at + i
		for at = from; at < len(path) && path[at] == '.'; {
			at++
		}
		before, after := path[:from], path[at:]
		if at-from <= 2 &&
			(before == "" || strings.HasSuffix(before, "/") || strings.HasSuffix(before, `\`) || strings.HasSuffix(before, "%2F")) &&
			(after == "" || strings.HasPrefix(after, "/") || strings.HasPrefix(after, `\`) || strings.HasPrefix(after, "%2F")) {
			return true
		}
	}
}

// decodeButSlash decodes percent encoding, but not of a slash, which becomes
// %2F in that spelling.
func decodeButSlash(s string) string {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' && i+2 < len(s) {
			hi, lo := unhex(s[i+1]), unhex(s[i+2])
			if hi >= 0 && lo >= 0 {
				i += 2
				if c = byte(hi<<4 | lo); c == '/' {
					b = append(b, "%2F"...)
					continue
				}
			}
		}
		b = append(b, c)
	}
	return string(b)
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// patternPath returns the path of the pattern that a router found, without method
// and host, or the empty string if none has.
func patternPath(r *http.Request) string {
	if i := strings.IndexByte(r.Pattern, '/'); i >= 0 {
		return r.Pattern[i:]
	}
	return ""
}
