// Package records sends the TLS records of one write with one system call. Package
// crypto/tls cuts a write into records of 16 KiB, and makes a call for each.
package records
