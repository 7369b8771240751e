package app

import (
	"fmt"
	"net"
	"strings"
)

// notify tells the service manager that started the program what it is doing, as sd_notify(3) says:
// a datagram to the socket NOTIFY_SOCKET. Without that variable nobody waits for it.
func (a *app) notify(state string) error {
	for _, v := range a.Environ {
		at, found := strings.CutPrefix(v, "NOTIFY_SOCKET=")
		if !found || at == "" {
			continue
		}
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: at, Net: "unixgram"})
		if err != nil {
			return fmt.Errorf("the service manager cannot be told %s: %w", state, err)
		}
		if _, err = conn.Write([]byte(state)); err != nil {
			err = fmt.Errorf("the service manager cannot be told %s: %w", state, err)
		}
		_ = conn.Close() // a datagram has been sent or not
		return err
	}
	return nil
}
