package server

import (
	"log/slog"

	"github.com/weirlimit/weir/internal/audit"
	"github.com/weirlimit/weir/internal/overrides"
	"github.com/weirlimit/weir/transport"
)

// accounts is the audit of a node, and what it is told besides requests. Its zero value has
// none.
type accounts struct {
	*audit.Log
	permissions string // the file
}

// openAccounts opens the audit; an empty name is none.
func openAccounts(to, permissions string, log *slog.Logger) (accounts, error) {
	if to == "" {
		return accounts{}, nil
	}
	l, err := audit.Open(to, log)
	return accounts{l, permissions}, err
}

// auditor returns what requests are told to, nil if there is no audit.
func (a accounts) auditor() transport.Auditor {
	if a.Log == nil {
		return nil
	}
	return a.Log
}

// fileChanged tells the audit that a file was put into force, or was refused. What the file
// has is not told, nor why it was refused: the log has that.
func (a accounts) fileChanged(action, subject string, err error) {
	e := transport.AuditEvent{Action: action, Outcome: transport.AuditDone, Over: "file", Subject: subject}
	if err != nil {
		e.Outcome, e.Why = transport.AuditFailed, "the file is not valid: the log says why"
	}
	a.Audited(e)
}

// certificatesChanged returns what tells the audit of certificates, by what they are for.
func (a accounts) certificatesChanged(of string) func(error) {
	return func(err error) { a.fileChanged("certificates", of, err) }
}

// memberFilesChanged tells the audit of certificates for members, or of gossip keys.
func (a accounts) memberFilesChanged(what string, err error) { a.fileChanged(what, "members", err) }

// permissionsChanged tells the audit of another permissions file.
func (a accounts) permissionsChanged(err error) { a.fileChanged("permissions", a.permissions, err) }

// permissionsChanged returns what puts the shares of tenants of another permissions file into force, and tells the
// audit of it.
func (s *Server) permissionsChanged() func(error) {
	return func(err error) {
		if err == nil {
			s.node.SetTenantShares(s.access.TenantShares())
		}
		s.audit.permissionsChanged(err)
	}
}

// overrideEnded tells the audit of an override that ended by itself.
func (a accounts) overrideEnded(e *overrides.Entry) {
	a.Audited(transport.AuditEvent{Action: "override", Outcome: transport.AuditDone, Over: "clock",
		Subject: e.Subject(), Why: e.What() + " ended: " + e.Why})
}

// overrideHeard tells the audit of an override that another member told. That member is the caller, and vouches for who
// set it.
func (a accounts) overrideHeard(e *overrides.Entry) {
	by := ""
	if e.By != "" {
		by = " by " + e.By + ", as it says"
	}
	a.Audited(transport.AuditEvent{Action: "override", Outcome: transport.AuditDone, Over: "peer",
		Caller: "member " + e.ToldBy, Subject: e.Subject(), Why: e.Does() + by + ": " + e.Why})
}

// peerRefused tells the audit of a connection to the peer port that was refused.
func (a accounts) peerRefused(from, why string) {
	a.Audited(transport.AuditEvent{Action: "connect", Outcome: transport.AuditRefused, From: from, Over: "peer", Why: why})
}
