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
	return fmt.Errorf("the certificate is for %q, not for the member %q of the cluster %q: it needs the URI %q among its alternative names, or that common name with the cluster as organization",
		shorten(leaf.Subject.CommonName), name, cluster, MemberURI(cluster, name))
}

func shorten(s string) string {
	if len(s) > maxShown {
		return s[:maxShown] + "…"
	}
	return s
}
