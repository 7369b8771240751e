package certs

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// parse returns the certificates of a file, at least one.
func parse(kind, name string, data []byte, most int) (all []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue // such as the key, where one file has both
		}
		if len(all) == most {
			return nil, fmt.Errorf("%s %s has more than %d certificates: leave only those that are needed", kind, name, most)
		}
		one, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s %s: certificate %d is broken: %w", kind, name, len(all)+1, err)
		}
		all = append(all, one)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s %s has no certificate: give one in PEM, which begins with -----BEGIN CERTIFICATE-----",
			kind, name)
	}
	return all, nil
}
