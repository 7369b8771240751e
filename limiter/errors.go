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

// The reasons why a member of a cluster should not be asked, wrapped.
var (
	// ErrJoining: it has not seen the cluster yet. Ask another one.
	ErrJoining = errors.New("the node is joining")
	// ErrSettling: it does not hold yet what it should; checks go on.
	ErrSettling = errors.New("partitions are not settled")
	// ErrLeaving: it hands over what it holds; checks go on until it is gone.
	ErrLeaving = errors.New("the node is leaving")
)
