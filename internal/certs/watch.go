package certs

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"time"
)

// sayAgain is the interval at which a warning of expiry is repeated.
const sayAgain = time.Hour

// Every is a sensible interval of the ticks of [Store.Watch].
const Every = 5 * time.Second

// Watch polls at each tick until the context ends, and logs what was loaded, why files are
// not in force, that they are those in force again, and, once an hour, that something expires
// soon. told, unless nil, is called when files were loaded again or are valid again, and with
// the error if they are not valid.
func (s *Store) Watch(ctx context.Context, tick <-chan time.Time, log *slog.Logger, told func(error)) {
	var said time.Time
	expiry := func() {
		if text := s.Warning(); text != "" && (said.IsZero() || s.config.Now().Sub(said) >= sayAgain) {
			said = s.config.Now()
			log.Warn(text)
		}
	}
	if w := s.KeyWarning(); w != "" {
		log.Warn(w)
	}
	expiry()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
		before := s.Problem()
		changed, err := s.Poll()
		restored := !changed && before != "" && s.Problem() == ""
		if told != nil && (changed || restored || err != nil) {
			told(err)
		}
		if restored {
			log.Info("the " + s.config.What + " certificate files are valid again, with the contents that are in force")
		}
		if err != nil {
			log.Error("the "+s.config.What+" certificate files have changed and are not valid: those read before stay in force",
				"error", err)
		}
		if changed {
			said = time.Time{}
			_, end := s.AuthoritiesValidity()
			args := []any{"authorities_expire", end}
			if leaf := s.Leaf(); leaf != nil {
				_, end = s.Validity()
				args = append(args, "serial", leaf.SerialNumber.Text(16), "expires", end)
			}
			log.Info("the "+s.config.What+" certificate files were loaded again: new connections use them", args...)
			if w := s.KeyWarning(); w != "" {
				log.Warn(w)
			}
		}
		expiry()
	}
}

// maxShown bounds a name that another side's certificate has.
const maxShown = 64

// named adds to an error whose certificate it is about.
func named(leaf *x509.Certificate, err error) error {
	name := leaf.Subject.CommonName
	if len(leaf.URIs) > 0 {
		name = leaf.URIs[0].String()
	} else if len(leaf.DNSNames) > 0 {
		name = leaf.DNSNames[0]
	}
	return fmt.Errorf("the certificate for %q: %w", shorten(name), err)
}
