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

// loadCertificates loads the files of the certificate for peers, if there are any.
func (m *member) loadCertificates() (err error) {
	c := &m.config
	if c.PeerCertFile == "" {
		return nil
	}
	m.certificates, err = certs.Open(certs.Config{
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

// reportFiles tells [Config.FilesChanged] of files that were read again.
func (m *member) reportFiles(what string, err error) {
	if m.config.FilesChanged != nil {
		m.config.FilesChanged(what, err)
	}
}

// watchCertificates loads the files again when they change, until the member ends.
func (m *member) watchCertificates() {
	if m.certificates == nil {
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
		m.certificates.Watch(ctx, tick.C, m.log, func(err error) {
			if err == nil {
				m.links.Recheck(true)
			}
			m.reportFiles("certificates", err)
		})
	})
}
