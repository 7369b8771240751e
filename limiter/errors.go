package limiter

import "errors"

// ErrInvalid is wrapped by every error that is the asker's to mend: a limit
// that cannot be, a cost out of range, a key that is too long. Nothing was
// decided or counted when it is returned.
var ErrInvalid = errors.New("invalid")

// ErrUnanswered is wrapped where something was asked of whoever holds a key, and
// nobody has answered in time. The error says whether it may have been done.
var ErrUnanswered = errors.New("nobody who holds the keys has answered")

// ErrForbidden is wrapped where whoever holds a key refuses what was asked of it,
// because its operator has not allowed that. Nothing was done for that key.
var ErrForbidden = errors.New("whoever holds the keys does not allow it")
