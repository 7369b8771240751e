package peer

// MaxNoteBytes is the greatest length of a note.
const MaxNoteBytes = 512 << 10

// NoteKind is the purpose of a note.
type NoteKind uint8

// The kinds.
const (
	// Question asks the receiver's program for an answer.
	Question NoteKind = iota
	// Answered answers a Question.
	Answered
	// News needs no answer.
	News
)

// Note is what the programs of two members say to each other, beside the counters: what a
// member has seen, for one that an operator asks. It goes over a direct connection or is lost. A
// version that does not know it does not answer.
type Note struct {
	Kind NoteKind
	// ID is the number of the question, repeated in its answer.
	ID uint64
	// Text has at most MaxNoteBytes. It must not be changed.
	Text []byte
}
