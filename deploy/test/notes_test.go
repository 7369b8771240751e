package deploytest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// notes returns what helm says after an installation. "helm template" leaves that out, so a copy of the chart has it as
// a manifest.
func notes(t *testing.T, set string) string {
	t.Helper()
	whole, err := filepath.Abs(chart)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "templates"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Chart.yaml", "values.yaml", "values.schema.json", filepath.Join("templates",
		"_helpers.tpl")} {
		if err := os.Symlink(filepath.Join(whole, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	text := "notes: |\n  " + strings.ReplaceAll(read(t, chart, "templates", "NOTES.txt"), "\n", "\n  ")
	if err := os.WriteFile(filepath.Join(dir, "templates", "notes.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, said, err := helm(t, "template", "weir", dir, "--kube-version", kubernetes, "--namespace", "limits", "--values",
		"testdata/least.yaml", "--set", set)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, said)
	}
	return out
}

// Where members have certificates from a Secret, the notes make it, with those of all pods.
func TestNotesOfCertificates(t *testing.T) {
	got := notes(t, "peerTLS.existingSecret=certs,peerTLS.insecure=false,replicas=2")
	for _, want := range []string{"and the Secret certs", "node keys keys/ --authority authority/ --cluster-name weir " +
		"--member weir-0,weir-1\n", "kubectl -n limits create secret generic certs --from-file=keys/peer-ca.crt \\\n",
		"--from-file=keys/weir-1-peer.crt --from-file=keys/weir-1-peer.key\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q:\n%s", want, got)
		}
	}
}

// The notes have the namespace and, with TLS, the flags that a command needs, and say where there is none.
func TestNotes(t *testing.T) {
	const members, open = "kubectl -n limits exec weir-0 -- /weir members", "Clients ask without TLS"
	for set, want := range map[string]struct {
		asks string
		open bool
	}{
		"logLevel=info":                       {members + "\n", true},
		"tls.existingSecret=a":                {members + "\n", false}, // the environment names the authority
		"tls.existingSecret=a,tls.caKey=":     {members + " --tls\n", false},
		"keys.existingSecret=b,replicas=5":    {"kubectl -n limits create secret generic b ", true},
		"fullnameOverride=shop,logLevel=warn": {"exec shop-0 -- /weir members\n", true},
	} {
		if got := notes(t, set); !strings.Contains(got, want.asks) || strings.Contains(got, open) != want.open ||
			!strings.Contains(got, "(--insecure)") {
			t.Errorf("%s:\n%s\nwant %q", set, got, want.asks)
		}
	}
}
