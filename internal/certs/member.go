package certs

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// memberScheme begins the URI of a member in its certificate.
const memberScheme = "weir"

// MemberURI returns the URI that a member's certificate has as a subject alternative name:
// weir://CLUSTER/node/NAME.
func MemberURI(cluster, name string) string {
	return (&url.URL{Scheme: memberScheme, Host: cluster, Path: "/node/" + name}).String()
}

// CheckMember returns nil if a certificate is for this member of this cluster: it has the
// member's URI or, if it has no URI of that kind, the member's name as its common name and
// the cluster as an organization.
func CheckMember(leaf *x509.Certificate, cluster, name string) error {
	var have []string
	for _, u := range leaf.URIs {
		if !strings.EqualFold(u.Scheme, memberScheme) {
			continue
		}
		if u.Host == cluster && u.Path == "/node/"+name && u.User == nil && u.RawQuery == "" && u.Fragment == "" {
			return nil
		}
		have = append(have, u.String())
	}
	switch {
	case len(have) > 0:
		return fmt.Errorf("the certificate is for %q, not for %q", shorten(have[0]), MemberURI(cluster, name))
	case leaf.Subject.CommonName == name && slices.Contains(leaf.Subject.Organization, cluster):
		return nil
	}
	return fmt.Errorf("the certificate is for %q, not for the member %q of the cluster %q: it needs the URI %q among "+
		"its alternative names, or that common name with the cluster as organization",
		shorten(leaf.Subject.CommonName), name, cluster, MemberURI(cluster, name))
}

// CheckTemplate returns nil if a template of the URIs of members is valid: a URI that
// differs for each name.
func CheckTemplate(template string) error {
	u, err := url.Parse(strings.NewReplacer("{cluster}", "c", "{name}", "n").Replace(template))
	switch {
	case err != nil || u.Scheme == "" || u.Host == "":
		return fmt.Errorf("%q is not a URI: give one such as spiffe://example.org/weir/{name}", template)
	case !strings.Contains(template, "{name}"):
		return fmt.Errorf("%q has no {name}, so that one certificate would be that of every member: put {name} where the "+
			"URI has the member's name", template)
	}
	return nil
}

// CheckMemberURI is CheckMember for certificates whose URI a template gives: the certificate
// has that URI and no other. An empty template means [CheckMember].
func CheckMemberURI(leaf *x509.Certificate, template, cluster, name string) error {
	if template == "" {
		return CheckMember(leaf, cluster, name)
	}
	want := strings.NewReplacer("{cluster}", cluster, "{name}", name).Replace(template)
	if len(leaf.URIs) == 1 && leaf.URIs[0].String() == want {
		return nil
	}
	have := leaf.Subject.CommonName
	if len(leaf.URIs) > 0 {
		have = leaf.URIs[0].String()
	}
	return fmt.Errorf("the certificate is for %q, not for the member %q: it needs the URI %q among its alternative "+
		"names, and no other URI", shorten(have), name, want)
}

// CheckMember is [CheckMemberURI] with the template of the store.
func (s *Store) CheckMember(leaf *x509.Certificate, cluster, name string) error {
	return CheckMemberURI(leaf, s.config.MemberURI, cluster, name)
}

// StillMember returns nil if what a member showed when its connection was made comes from the
// authorities that are in force now, and is for this member. A certificate that has expired since does
// not end its connection.
func (s *Store) StillMember(chain []*x509.Certificate, cluster, name string) error {
	if len(chain) == 0 {
		return errNone
	}
	leaf, at := chain[0], s.config.Now()
	if at.After(leaf.NotAfter) {
		at = leaf.NotAfter
	}
	if err := s.current.Load().verify(chain, s.config.Usages, "", at); err != nil {
		return named(leaf, err)
	}
	return s.CheckMember(leaf, cluster, name)
}

func shorten(s string) string {
	if len(s) > maxShown {
		return s[:maxShown] + "…"
	}
	return s
}
