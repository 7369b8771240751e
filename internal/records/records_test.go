package records

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wire is a connection that notes its writes. One of them can fail, or be short.
type wire struct {
	net.Conn
	mu     sync.Mutex
	writes []int
	fail   int // the number of the write that fails, from 1; 0: none
	err    error

	waits  chan struct{} // closed by a write that waits until closed is; nil: none does
	closed chan struct{}
}

func (w *wire) Close() error {
	if w.closed != nil {
		close(w.closed)
	}
	return w.Conn.Close()
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	w.writes = append(w.writes, len(p))
	fails, err := len(w.writes) == w.fail, w.err
	w.mu.Unlock()
	if w.waits != nil {
		close(w.waits)
		<-w.closed
		return 0, net.ErrClosed
	}
	if fails {
		n, _ := w.Conn.Write(p[:len(p)/2]) // the test sees what arrives
		return n, err
	}
	return w.Conn.Write(p)
}

func (w *wire) sizes() (out []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out, w.writes = w.writes, nil
	return out
}

// connect returns both sides of a connection with TLS, and what is below the server's.
func connect(t *testing.T, j *Joiner) (server net.Conn, below *wire, client *tls.Conn) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	below = &wire{Conn: a}
	over := j.Server(below, &tls.Config{
		MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	client = tls.Client(c, &tls.Config{InsecureSkipVerify: true,
		MinVersion: tls.VersionTLS13}) //nolint:gosec // a test's own server
	t.Cleanup(func() { _, _ = a.Close(), c.Close() })
	if Join(over) != net.Conn(over) {
		t.Error("records are joined before the handshake has ended")
	}
	shaken := make(chan error, 1)
	go func() { shaken <- client.Handshake() }()
	if err := errors.Join(over.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	below.sizes()
	return Join(over), below, client
}

// text returns bytes that differ.
func text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7 / 3)
	}
	return b
}

// A write is sent at once if it is no longer than gRPC's, with the records that TLS makes of
// it. Longer ones are sent in pieces of bounded size.
func TestRecordsOfAWriteAreSentTogether(t *testing.T) {
	const record = maxPlain + 22 // header, type and tag
	for _, c := range []struct {
		write int
		sent  []int
	}{
		{1, []int{23}},
		{maxPlain, []int{record}},
		{maxPlain + 1, []int{record + 23}},
		{28_000, []int{28_000 + 2*22}},
		{32 << 10, []int{2 * record}},
		{48 << 10, []int{2 * record, record}},
		{100_000, []int{2 * record, 2 * record, 2 * record, 100_000 - 6*maxPlain + 22}},
	} {
		server, below, client := connect(t, new(Joiner))
		want, got := text(c.write), make([]byte, c.write)
		read := make(chan error, 1)
		go func() {
			_, err := io.ReadFull(client, got)
			read <- err
		}()
		n, err := server.Write(want)
		if err := errors.Join(err, <-read); err != nil || n != c.write || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: %d were written, or others arrived: %v", c.write, n, err)
		}
		sent := below.sizes()
		if len(sent) != len(c.sent) {
			t.Errorf("%d bytes were sent as %v, want %v", c.write, sent, c.sent)
			continue
		}
		for i := range sent {
			if sent[i] != c.sent[i] {
				t.Errorf("%d bytes were sent as %v, want %v", c.write, sent, c.sent)
				break
			}
		}
		if server.(*joined).under.gathered != nil {
			t.Errorf("%d bytes: the connection keeps a buffer", c.write)
		}
	}
}

// After a write that failed, or was short, nothing more is sent: half of a record may be on
// the way.
func TestAFailedWriteIsTheLast(t *testing.T) {
	for name, failure := range map[string]error{"an error": errors.New("no route"), "a short write": nil} {
		server, below, client := connect(t, new(Joiner))
		below.fail, below.err = 1, failure
		n, err := server.Write(text(32 << 10))
		if want := errors.Join(failure); n != 0 || err == nil || want != nil && !errors.Is(err, failure) ||
			want == nil && !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		for _, size := range []int{1, 32 << 10} {
			if n, err := server.Write(text(size)); n != 0 || err == nil {
				t.Errorf("%s: then %d bytes were written: %v", name, n, err)
			}
		}
		if sent := below.sizes(); len(sent) != 1 {
			t.Errorf("%s: sent %v", name, sent)
		}
		_ = below.Close() // the client gets no more
		if got, err := io.ReadAll(client); len(got) > maxPlain || !bytes.Equal(got, text(len(got))) {
			t.Errorf("%s: the client read %d bytes, not those that were sent: %v", name, len(got), err)
		}
	}
}

// Close ends a write to a client that reads nothing, as TLS itself does.
func TestCloseEndsAWriteThatWaits(t *testing.T) {
	server, below, _ := connect(t, new(Joiner))
	below.waits, below.closed = make(chan struct{}), make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := server.Write(text(32 << 10))
		ended <- err
	}()
	<-below.waits
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the write ended with %v", err)
	}
	if n, err := server.Write(text(20_000)); n != 0 || err == nil {
		t.Errorf("after Close %d bytes were written", n)
	}
}

// Writes of several goroutines, short and long, arrive whole; and none is lost.
func TestWritesOfManyGoroutines(t *testing.T) {
	server, _, client := connect(t, new(Joiner))
	const writers, each = 4, 60
	sizes := []int{5, maxPlain, 28_000, 70_000}
	total := 0
	var all sync.WaitGroup
	for w := range writers {
		total += each * sizes[w]
		all.Go(func() {
			b := bytes.Repeat([]byte{byte(w)}, sizes[w])
			for range each {
				if n, err := server.Write(b); n != len(b) || err != nil {
					t.Error(n, err)
				}
			}
		})
	}
	counts := make([]int, writers)
	buf := make([]byte, 40_000)
	for got := 0; got < total; {
		n, err := client.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		got += n
		for _, b := range buf[:n] {
			counts[b]++
		}
	}
	all.Wait()
	for w, n := range counts {
		if n != each*sizes[w] {
			t.Errorf("writer %d: %d bytes arrived", w, n)
		}
	}
}

// TLS that is not of a Joiner is left alone.
func TestOtherTLS(t *testing.T) {
	other := tls.Server(nil, &tls.Config{MinVersion: tls.VersionTLS13})
	if Join(other) != net.Conn(other) {
		t.Error("it is wrapped")
	}
}
