package transport

import (
	"google.golang.org/grpc/codes"

	"github.com/weirlimit/weir/internal/weirwire"
)

// turn is the memory of one message of a stream and its reply. It is pooled, so a
// stream that waits for its next message holds none.
type turn struct {
	batch
	reply weirwire.Reply

	// Indexes within a batch, ascending: peeks are the checks that peek, fulls those
	// that the protobuf library decoded, refused those that are invalid.
	peeks   []int
	fulls   []fullCheck
	refused []refusal
}

// place returns the index in the message of the i-th request that was decided.
func (t *turn) place(i int) int {
	for _, r := range t.refused {
		if r.at > i {
			break
		}
		i++
	}
	return i
}

// code returns the status code of the reply as a whole, for the observer.
func (t *turn) code() codes.Code {
	if e := t.reply.Error; e != nil {
		return codes.Code(e.Code)
	}
	return codes.OK
}

// fullCheck is a check of a batch that the protobuf library has decoded.
type fullCheck struct {
	at int
	*weirwire.Full
}
