package transport

// Room returns how many bytes of the room for large messages are used.
func (s *Server) Room() int64 { return s.http.Handler.(*front).service.room.InUse() }
