package transport

// ConnectionsWithin is connectionsWithin.
func ConnectionsWithin(files int) int { return connectionsWithin(files) }
