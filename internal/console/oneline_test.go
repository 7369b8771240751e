package console

import (
	"encoding/json"
	"testing"
)

// A member's line stays one line, whatever it has in it.
func TestAMembersLineIsOneLine(t *testing.T) {
	lines := []json.RawMessage{json.RawMessage("{\n\"a\": 1\n}\n"), json.RawMessage(`{"b":"\n"}`)}
	if err := oneLineEach(lines); err != nil || string(lines[0]) != `{"a":1}` || string(lines[1]) != `{"b":"\n"}` {
		t.Errorf("%v: %s", err, lines)
	}
	if oneLineEach([]json.RawMessage{json.RawMessage("{}\n{\"end\": true}")}) == nil {
		t.Error("two values are one line")
	}
}
