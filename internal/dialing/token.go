package dialing

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/weirlimit/weir/internal/smallfile"
)

// maxToken bounds a token in bytes. Nodes read no longer one.
const maxToken = 8 << 10

// tokenAge is how long a token that was read is used before its file is looked at again.
const tokenAge = time.Second

// tokenFile is a file with a token. It is safe for concurrent use.
type tokenFile struct {
	name string

	mu    sync.Mutex
	token string
	at    time.Time // when the file was looked at
}

func openToken(name string) (*tokenFile, error) {
	f := &tokenFile{name: name}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	return f, nil
}

// read returns the token. If the file cannot be read any more, it returns the last one:
// the node says if that has expired.
func (f *tokenFile) read() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.token != "" && time.Since(f.at) < tokenAge {
		return f.token, nil
	}
	f.at = time.Now()
	token, err := readToken(f.name)
	if err == nil {
		f.token = token
	} else if f.token == "" {
		return "", err
	}
	return f.token, nil
}

func readToken(name string) (string, error) {
	data, _, err := smallfile.ReadSecret("token file", name, maxToken+2) // and a line break
	if err != nil {
		return "", err
	}
	return tokenOf(name, data)
}

// tokenOf returns the token of a file's contents.
func tokenOf(name string, data []byte) (string, error) {
	token := strings.TrimSpace(string(data))
	switch {
	case token == "":
		return "", fmt.Errorf("the token file %s is empty", name)
	case len(token) > maxToken:
		return "", fmt.Errorf("the token in %s has %d bytes; at most %d are allowed", name, len(token), maxToken)
	}
	for _, b := range []byte(token) {
		if b <= ' ' || b > '~' {
			return "", fmt.Errorf("the file %s has more than one token: give the token alone, on one line", name)
		}
	}
	return token, nil
}

// perCall sends a token with each call of gRPC.
type perCall struct {
	file   *tokenFile
	secure bool
}

func (p perCall) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := p.file.read()
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (p perCall) RequireTransportSecurity() bool { return p.secure }
