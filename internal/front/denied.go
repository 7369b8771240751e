package front

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
)

// statusQuery is the query parameter that names the status for a refusal of a web proxy's
// sub-request, since some proxies pass only some statuses on: nginx 401 and 403.
const statusQuery = "deny"

// InsteadOf is the field of such a refusal with the status in whose place it is.
const InsteadOf = "X-Weir-Status"

// DeniedAs returns the status for refusals that a query asks for, 0 if it asks for none. After
// an error, too, the status counts that is not 0.
func DeniedAs(query string) (status int, err error) {
	q, err := url.ParseQuery(query)
	if err != nil {
		err = errors.New("the query cannot be read: give /v1/auth or /v1/auth?deny=403")
	}
	for name := range q {
		if name != statusQuery {
			err = fmt.Errorf("there is no parameter %.40q: give /v1/auth or /v1/auth?deny=403", name)
		}
	}
	text := q.Get(statusQuery)
	if text == "" {
		return 0, err
	}
	n, bad := strconv.Atoi(text)
	if bad != nil || n < 400 || n > 499 {
		return 0, fmt.Errorf("deny is %.40q: give a status from 400 to 499", text)
	}
	return n, err
}
