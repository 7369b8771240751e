package transport

import (
	"github.com/weirlimit/weir/internal/listen"
	"github.com/weirlimit/weir/internal/weirwire"
)

// The estimated bytes of memory of a message. Strings and buffers grow with its bytes;
// requests, decisions and replies with its checks; maps and limits with its parts.
const (
	weightOfByte      = listen.WeightOfByte
	weightOfCheck     = 1 << 10
	weightOfPart      = 256
	weightOfJSONCheck = 4 << 10
	weightOfJSON      = 6 // in addition for each byte of JSON, whose values are copied while it is parsed
)

// weightOf estimates the memory of a protobuf message in bytes.
func weightOf(bytes, checks, parts int) int64 {
	return int64(bytes)*weightOfByte + int64(checks)*weightOfCheck + int64(parts)*weightOfPart
}

// weightOfParts estimates the memory of the decoded parts of a request. One with too many is not decoded.
func weightOfParts(p weirwire.Parts) int64 {
	if p.TooMany() {
		return 0
	}
	return weightOf(0, 0, p.Sum())
}
