// Package disk keeps records in a directory: segments of frames with checksums, to which one process appends, and
// which it reads when it starts. It does not know what the records mean.
//
// Each record names the keys that it is about. A record may replace all earlier ones of a key; what no record needs any
// more is deleted with its segment, the oldest segment first. So a directory holds at most about twice what is needed.
//
// What a segment says is hostile until its checksum, which covers whose it is, the number of the segment and the place
// in it, was compared. A damaged record is skipped. Each record names the place of its keys' records before, and a key
// whose record before was skipped has nothing new until a record replaces all of it: so what is read of a key is always
// what was written up to some moment.
package disk
