package middle

import (
	"strings"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/identity"
)

// Claim names who sends a request by claims of the token in the value of Authorization ("Bearer"), unless it has a
// user already. An empty groupClaim leaves the group unset. If the token is missing, not valid or lacks the user claim,
// the request stays anonymous.
func Claim(q *limiter.Request, t *identity.Tokens, authorization, userClaim, groupClaim string) {
	raw := bearer(authorization)
	if q.User != "" || raw == "" {
		return
	}
	claims, err := t.Verify(raw)
	if user := claims.Text(userClaim); err == nil && user != "" {
		Name(q, user, claims.Text(groupClaim))
	}
}

// Name sets the user of a request, and the group unless it is set already.
func Name(q *limiter.Request, user, group string) {
	q.User = user
	if q.Group == "" {
		q.Group = group
	}
}

// bearer returns the token in a value of Authorization, empty if there is none.
func bearer(value string) string {
	const scheme = "Bearer "
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return ""
	}
	return strings.TrimSpace(value[len(scheme):])
}
