package cluster

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/internal/certs"
	"github.com/weirlimit/weir/internal/smallfile"
)

// gossipKeyFile is how errors and logs call the file.
const gossipKeyFile = "gossip key file"

// ReadGossipKeys returns the keys in a file: base64, one a line, in the order of the file.
// Empty lines and those that begin with # are left out. A warning that is not empty says
// that every user of the machine can read the file. An error never contains a key.
func ReadGossipKeys(name string) (keys [][]byte, warning string, err error) {
	data, warning, err := smallfile.ReadSecret(gossipKeyFile, name, smallfile.MaxSecret)
	if err != nil {
		return nil, "", err
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if size := len(key); err != nil || size != 16 && size != 24 && size != 32 {
			return nil, "", fmt.Errorf("%s %s: line %d is not a key: give 16, 24 or 32 random bytes in base64, such as "+
				"`openssl rand -base64 32` prints", gossipKeyFile, name, n)
		}
		keys = append(keys, key)
	}
	if len(keys) == 0 {
		return nil, "", fmt.Errorf("%s %s has no key", gossipKeyFile, name)
	}
	return keys, warning, nil
}

// loadGossipKeys reads the file of gossip keys, if there is one.
func (c *Config) loadGossipKeys() (err error) {
	if c.GossipKeyFile == "" {
		return nil
	}
	if c.GossipKeys, _, err = ReadGossipKeys(c.GossipKeyFile); err != nil {
		return fmt.Errorf("%w: Cluster.GossipKeyFile: %w", weir.ErrInvalid, err)
	}
	return nil
}

// watchGossipKeys reads the file of gossip keys again until the member ends, and puts
// them into force if they have changed.
func (p *protection) watchGossipKeys() {
	m := p.member
	if m.config.GossipKeyFile == "" {
		return
	}
	m.serving.Go(func() {
		tick := time.NewTicker(certs.Every)
		defer tick.Stop()
		have, problem := m.config.GossipKeys, ""
		wait := func() bool {
			select {
			case <-time.After(keysSettle):
				return true
			case <-m.ended:
				return false
			}
		}
		for {
			select {
			case <-tick.C:
				have, problem = p.reloadGossipKeys(have, problem, wait)
			case <-m.ended:
				return
			}
		}
	})
}

// keysSettle is how long a file of gossip keys must have been the same before its keys are
// put into force.
const keysSettle = time.Second

// reloadGossipKeys reads the file, and again after wait if it has changed: a file that is
// being written can end with a shorter key that is valid, or lack keys. have are the keys in
// force, problem is what was logged last about the file; it returns both anew. A problem is
// logged once. wait returns false if the member has ended.
func (p *protection) reloadGossipKeys(have [][]byte, problem string, wait func() bool) (
	now [][]byte, logged string,
) {
	m := p.member
	keys, _, err := ReadGossipKeys(m.config.GossipKeyFile)
	if err == nil {
		if slices.EqualFunc(keys, have, bytes.Equal) {
			if problem != "" {
				p.report("gossip keys", nil)
				m.log.Info("the gossip key file is valid again, with the keys that are in force")
			}
			return have, ""
		}
		if !wait() {
			return have, problem
		}
		again, _, broken := ReadGossipKeys(m.config.GossipKeyFile)
		if broken != nil || !slices.EqualFunc(keys, again, bytes.Equal) {
			return have, problem // the next look finds it complete
		}
		err = m.gossip.SetKeys(keys)
	}
	if err != nil {
		if err.Error() != problem {
			p.report("gossip keys", err)
			m.log.Error("the gossip keys cannot be loaded again, and those before stay in force", "error", err)
		}
		return have, err.Error()
	}
	ids := make([]string, len(keys))
	for i, k := range keys {
		ids[i] = keyID(k)
	}
	p.report("gossip keys", nil)
	m.log.Info("the gossip keys were loaded again", "encrypts", ids[0], "decrypt", ids)
	return keys, ""
}

// keyID returns the beginning of a key's hash, by which logs of several members can be
// compared.
func keyID(key []byte) string {
	sum := sha256.Sum256(append([]byte("weir gossip key\x00"), key...))
	return hex.EncodeToString(sum[:4])
}
