package cluster

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/weirlimit/weir/internal/certs"
)

func countGiven(texts ...string) (n int) {
	for _, t := range texts {
		if t != "" {
			n++
		}
	}
	return n
}

// protection keeps strangers out of a member's links and gossip, with files that are read again when they change.
type protection struct {
	member *member
	// certificates are what members show each other; nil if they speak without TLS.
	certificates *certs.Store
	lacks        *InsecureError // what would be needed to keep strangers out; nil if nothing
}

// load loads the files of the certificate for peers, if there are any. It refuses a member that lets
// strangers in unless its configuration permits that.
func (p *protection) load(ctx context.Context) (err error) {
	m, c := p.member, &p.member.config
	if p.lacks = c.insecure(ctx, m.Secret); p.lacks != nil && !c.Insecure {
		return p.lacks
	}
	if c.PeerCertFile == "" {
		return nil
	}
	p.certificates, err = certs.Open(certs.Config{
		What: "peer", CertFile: c.PeerCertFile, KeyFile: c.PeerKeyFile, CAFile: c.PeerCAFile, MemberURI: c.PeerURI,
		Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, Own: true,
		Check: func(leaf *x509.Certificate) error {
			if err := certs.CheckMemberURI(leaf, c.PeerURI, m.clusterName(), c.Name); err != nil {
				return fmt.Errorf("is not this member's: %w", err)
			}
			return nil
		},
	})
	if err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return nil
}

// report tells [Config.FilesChanged] of files that were read again.
func (p *protection) report(what string, err error) {
	if changed := p.member.config.FilesChanged; changed != nil {
		changed(what, err)
	}
}

// watchCertificates loads the files again when they change, until the member ends.
func (p *protection) watchCertificates() {
	m := p.member
	if p.certificates == nil {
		return
	}
	if m.config.PeerTLSOptional {
		m.log.Warn("members without a certificate are accepted: when all members have one, require it from all")
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.serving.Go(func() {
		defer cancel()
		<-m.ended
	})
	m.serving.Go(func() {
		tick := time.NewTicker(certs.Every)
		defer tick.Stop()
		p.certificates.Watch(ctx, tick.C, m.log, func(err error) {
			if err == nil {
				m.links.Recheck(true)
			}
			p.report("certificates", err)
		})
	})
}
