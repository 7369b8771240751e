package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const (
	// redisWait bounds the wait for each answer of Redis.
	redisWait = 5 * time.Second
	// maxReplyBytes and maxReplyItems bound one answer.
	maxReplyBytes = 1 << 20
	maxReplyItems = 1 << 16
	// scanCount is how many keys Redis examines in one SCAN.
	scanCount = 1000
)

// redisConn reads what the store does not show: what Redis uses, and which keys it has.
// It implements the necessary part of the protocol. It is for one goroutine.
type redisConn struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
}

func dialRedis(ctx context.Context, addr string) (*redisConn, error) {
	ctx, cancel := context.WithTimeout(ctx, redisWait)
	defer cancel()
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, fmt.Errorf("redis %s cannot be reached: %w", addr, err)
	}
	return &redisConn{addr, conn, bufio.NewReader(conn)}, nil
}

func (c *redisConn) close() error { return c.conn.Close() }

// do sends a command and returns the answer: a string, or a list of answers.
func (c *redisConn) do(args ...string) (any, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if err := c.conn.SetDeadline(time.Now().Add(redisWait)); err != nil {
		return nil, c.failed(args[0], err)
	}
	if _, err := io.WriteString(c.conn, b.String()); err != nil {
		return nil, c.failed(args[0], err)
	}
	reply, err := c.reply(0)
	if err != nil {
		return nil, c.failed(args[0], err)
	}
	return reply, nil
}

func (c *redisConn) failed(command string, err error) error {
	return fmt.Errorf("redis %s: %s failed: %w", c.addr, command, err)
}

// reply reads an answer, which may be nested.
func (c *redisConn) reply(depth int) (any, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" || depth > 2 {
		return nil, errors.New("its answer is not in the Redis protocol")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return nil, errors.New(rest)
	}
	n, err := strconv.Atoi(rest)
	switch {
	case err != nil || kind != '$' && kind != '*':
		return nil, errors.New("its answer is not in the Redis protocol")
	case n < 0:
		return "", nil // a nil reply
	case kind == '$' && n <= maxReplyBytes:
		text := make([]byte, n+2)
		_, err := io.ReadFull(c.in, text)
		return string(text[:n]), err
	case kind == '*' && n <= maxReplyItems:
		list := make([]any, n)
		for i := range list {
			if list[i], err = c.reply(depth + 1); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	return nil, fmt.Errorf("an answer of %d is too long", n)
}

// redisUsage is what Redis reports about itself.
type redisUsage struct {
	cpu    time.Duration // since it was started
	memory float64       // in bytes, including buffers of its clients
}

func (c *redisConn) usage() (u redisUsage, err error) {
	fields := map[string]float64{"used_cpu_sys": 0, "used_cpu_user": 0, "used_memory": 0}
	for _, section := range []string{"cpu", "memory"} {
		reply, err := c.do("INFO", section)
		if err != nil {
			return u, err
		}
		text, _ := reply.(string)
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if _, wanted := fields[name]; !wanted {
				continue
			}
			if fields[name], err = strconv.ParseFloat(value, 64); err != nil {
				return u, c.failed("INFO", err)
			}
		}
	}
	if fields["used_memory"] == 0 {
		return u, c.failed("INFO", errors.New("the answer has no used_memory"))
	}
	u.cpu = time.Duration((fields["used_cpu_sys"] + fields["used_cpu_user"]) * float64(time.Second))
	u.memory = fields["used_memory"]
	return u, nil
}

// scan calls f with batches of the names of keys that begin with prefix. A name may
// occur twice.
func (c *redisConn) scan(prefix string, f func(names []string) error) error {
	for cursor := "0"; ; {
		reply, err := c.do("SCAN", cursor, "MATCH", prefix+"*", "COUNT", strconv.Itoa(scanCount))
		if err != nil {
			return err
		}
		parts, _ := reply.([]any)
		if len(parts) != 2 {
			return c.failed("SCAN", errors.New("the answer does not have two parts"))
		}
		list, _ := parts[1].([]any)
		names := make([]string, 0, len(list))
		for _, n := range list {
			if name, ok := n.(string); ok && strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			if err := f(names); err != nil {
				return err
			}
		}
		if cursor, _ = parts[0].(string); cursor == "0" || cursor == "" {
			return nil
		}
	}
}

// count returns the number of keys that begin with prefix.
func (c *redisConn) count(prefix string) (int, error) {
	seen := map[string]struct{}{}
	err := c.scan(prefix, func(names []string) error {
		for _, n := range names {
			seen[n] = struct{}{}
		}
		return nil
	})
	return len(seen), err
}

// forget deletes the keys that begin with prefix.
func (c *redisConn) forget(prefix string) error {
	return c.scan(prefix, func(names []string) error {
		_, err := c.do(append([]string{"UNLINK"}, names...)...)
		return err
	})
}
