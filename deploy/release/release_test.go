package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"go.yaml.in/yaml/v3"
)

// pretended returns a release of files that stand for the programs.
func pretended(t *testing.T) string {
	t.Helper()
	programs, out := t.TempDir(), t.TempDir()
	files := []string{"linux_amd64/weir", "linux_amd64/weir-node", "linux_arm64/weir", "linux_arm64/weir-node",
		"windows_amd64/weir.exe", "windows_amd64/weir-node.exe"}
	for _, p := range []string{"weir", "weir-node"} {
		for _, form := range []string{"%s.1", "%s.1.gz", "%s.bash", "_%s", "%s.fish", "%s.ps1"} {
			files = append(files, "share/"+fmt.Sprintf(form, p))
		}
	}
	for _, f := range files {
		at := filepath.Join(programs, f)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("this is "+f), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(t.Context(), []string{"v1.2.3-rc.1", "1700000000", programs, out}); err != nil {
		t.Fatal(err)
	}
	return out
}

// The files of a release, and what is in its archives. Made again, they are the same.
func TestRelease(t *testing.T) {
	one, two := pretended(t), pretended(t)
	files, err := os.ReadDir(one)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
		if read(t, one, f.Name()) != read(t, two, f.Name()) {
			t.Errorf("%s differs when it is made again", f.Name())
		}
	}
	if diff := cmp.Diff([]string{"index.yaml", "weir-1.2.3-rc.1-1.aarch64.rpm", "weir-1.2.3-rc.1-1.x86_64.rpm",
		"weir-1.2.3-rc.1.tgz", "weir_1.2.3-rc.1-1_amd64.deb", "weir_1.2.3-rc.1-1_arm64.deb",
		"weir_1.2.3-rc.1_image_amd64.tar", "weir_1.2.3-rc.1_image_arm64.tar",
		"weir_1.2.3-rc.1_linux_amd64.tar.gz", "weir_1.2.3-rc.1_linux_arm64.tar.gz",
		"weir_1.2.3-rc.1_windows_amd64.zip"}, names); diff != "" {
		t.Error(diff)
	}
	unpacked := map[string]string{}
	packed, err := gzip.NewReader(strings.NewReader(read(t, one, "weir_1.2.3-rc.1_linux_arm64.tar.gz")))
	if err != nil {
		t.Fatal(err)
	}
	each(t, packed, func(h *tar.Header, data string) { unpacked[fmt.Sprintf("%o %s", h.Mode, h.Name)] = data })
	if unpacked["755 weir_1.2.3-rc.1_linux_arm64/weir-node"] != "this is linux_arm64/weir-node" ||
		unpacked["644 weir_1.2.3-rc.1_linux_arm64/share/_weir"] != "this is share/_weir" || len(unpacked) != 12 {
		t.Errorf("%q", unpacked)
	}
	z, err := zip.OpenReader(filepath.Join(one, "weir_1.2.3-rc.1_windows_amd64.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	if z.File[1].Name != "weir_1.2.3-rc.1_windows_amd64/weir-node.exe" || len(z.File) != 6 {
		t.Errorf("%d files, and the second is %s", len(z.File), z.File[1].Name)
	}
}

// each reads a tar.
func each(t *testing.T, from io.Reader, see func(h *tar.Header, data string)) {
	t.Helper()
	r := tar.NewReader(from)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		var data bytes.Buffer
		if err == nil {
			_, err = io.Copy(&data, r)
		}
		if err != nil {
			t.Fatal(err)
		}
		see(h, data.String())
	}
}

// The image says of itself what the Dockerfile does, and has all that its last stage copies, with the
// same owners.
func TestImageIsTheDockerfiles(t *testing.T) {
	img, err := tarball.ImageFromPath(filepath.Join(pretended(t), "weir_1.2.3-rc.1_image_arm64.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if file.OS != "linux" || file.Architecture != "arm64" || len(file.RootFS.DiffIDs) != 2 {
		t.Errorf("%+v", file)
	}
	_, last, _ := strings.Cut(read(t, "..", "..", "Dockerfile"), "\nFROM scratch\n")
	if diff := cmp.Diff(said(t, last), file.Config, cmp.FilterPath(func(p cmp.Path) bool { return p.String() == "Labels" },
		cmp.Ignore())); diff != "" {
		t.Errorf("the Dockerfile says -, the image +:\n%s", diff)
	}
	entries := map[string]string{}
	all := mutate.Extract(img)
	defer all.Close()
	each(t, all, func(h *tar.Header, data string) {
		entries["/"+strings.TrimSuffix(h.Name, "/")] = fmt.Sprintf("%d:%d %o %s", h.Uid, h.Gid, h.Mode, data)
	})
	if len(entries) != 16 || entries["/node"] != "0:0 755 this is linux_arm64/weir-node" ||
		!strings.Contains(entries["/etc/ssl/certs/ca-certificates.crt"], "-----BEGIN CERTIFICATE-----\n") {
		t.Errorf("%d: %q", len(entries), entries["/node"])
	}
	copies := regexp.MustCompile(`(?m)^COPY --from=build( --chown=65532:65532)? (.*)$`)
	for _, m := range copies.FindAllStringSubmatch(last, -1) {
		words := strings.Fields(m[2])
		for _, source := range words[:len(words)-1] {
			at := words[len(words)-1]
			switch {
			case source == "/links/":
				at = "/bin/ratelimit"
			case strings.HasSuffix(at, "/"):
				at = filepath.Join(at, filepath.Base(source))
			}
			if owned := strings.HasPrefix(entries[at], "65532:65532 755 "); entries[at] == "" || owned != (m[1] != "") {
				t.Errorf("%s: %.20q", at, entries[at])
			}
		}
	}
}

// said returns what a stage of a Dockerfile says of the image.
func said(t *testing.T, stage string) v1.Config {
	t.Helper()
	c := v1.Config{ExposedPorts: map[string]struct{}{}}
	quoted := regexp.MustCompile(`"([^"]*)"`)
	list := func(text string) (words []string) {
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			words = append(words, m[1])
		}
		return words
	}
	for line := range strings.SplitSeq(stage, "\n") {
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "USER":
			c.User = rest
		case "ENV":
			c.Env = strings.Fields(rest)
		case "EXPOSE":
			for _, port := range strings.Fields(rest) {
				c.ExposedPorts[port] = struct{}{}
			}
		case "ENTRYPOINT":
			c.Entrypoint = list(rest)
		case "HEALTHCHECK":
			c.Healthcheck = &v1.HealthConfig{Test: append([]string{"CMD"}, list(rest)...)}
			var interval, timeout, start string
			if _, err := fmt.Sscanf(rest, "--interval=%s --timeout=%s --start-period=%s --retries=%d", &interval, &timeout,
				&start, &c.Healthcheck.Retries); err != nil {
				t.Fatal(err)
			}
			for to, text := range map[*time.Duration]string{&c.Healthcheck.Interval: interval, &c.Healthcheck.Timeout: timeout,
				&c.Healthcheck.StartPeriod: start} {
				d, err := time.ParseDuration(text)
				if err != nil {
					t.Fatal(err)
				}
				*to = d
			}
		case "COPY", "#", "":
		default:
			t.Errorf("what is %q?", line)
		}
	}
	return c
}

// In a registry one name stands for the images of both processors.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	to := strings.TrimPrefix(server.URL, "http://") + "/weirlimit/weir:1.2.3-rc.1"
	if err := run(t.Context(), []string{"push", pretended(t), to}); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		img, err := remote.Image(ref, remote.WithContext(t.Context()),
			remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		if c, err := img.ConfigFile(); err != nil || c.Architecture != arch || c.Config.User != "65532:65532" {
			t.Errorf("%s: %+v, %v", arch, c, err)
		}
	}
	for args, want := range map[string]string{
		"push " + t.TempDir() + " " + to: "has no images", "push " + t.TempDir() + " weir": "is not valid",
		"1.2.3 0 x y": "the version", "v1.2 0 x y": "the version", "v1.2.3 now x y": "the time", "v1.2.3": "1 arguments",
		"v1.2.3 0 " + t.TempDir() + " y": "no directory of programs",
	} {
		if err := run(t.Context(), strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// Debian's tools find in the package what was meant. It depends on nothing.
func TestDebian(t *testing.T) {
	at := filepath.Join(pretended(t), "weir_1.2.3-rc.1-1_arm64.deb")
	if got := script(t, ".", nil, "dpkg-deb", "-f", at, "Package", "Version", "Architecture", "Depends"); got !=
		"Package: weir\nVersion: 1.2.3~rc.1-1\nArchitecture: arm64\n" {
		t.Error(got)
	}
	if got := script(t, ".", nil, "dpkg-deb", "-I", at, "conffiles"); got != "/etc/weir/rules.yaml\n/etc/weir/weir.env\n" {
		t.Error(got)
	}
	var names []string
	for line := range strings.SplitSeq(strings.TrimSpace(script(t, ".", nil, "dpkg-deb", "-c", at)), "\n") {
		f := strings.Fields(line)
		if f[1] != "root/root" || strings.HasPrefix(f[0], "-rwx") != strings.HasPrefix(f[5], "./usr/bin/weir") {
			t.Error(line)
		}
		if !strings.HasSuffix(f[5], "/") {
			names = append(names, strings.TrimPrefix(f[5], "."))
		}
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{"/etc/weir/rules.yaml", "/etc/weir/weir.env", "/usr/bin/weir", "/usr/bin/weir-node",
		"/usr/lib/systemd/system/weir.service", "/usr/lib/sysusers.d/weir.conf",
		"/usr/share/bash-completion/completions/weir", "/usr/share/bash-completion/completions/weir-node",
		"/usr/share/doc/weir/copyright", "/usr/share/fish/vendor_completions.d/weir-node.fish",
		"/usr/share/fish/vendor_completions.d/weir.fish", "/usr/share/man/man1/weir-node.1.gz",
		"/usr/share/man/man1/weir.1.gz", "/usr/share/zsh/vendor-completions/_weir",
		"/usr/share/zsh/vendor-completions/_weir-node"}, names); diff != "" {
		t.Error(diff)
	}
}

// The scripts of the packages are valid for the shell that runs them.
func TestScripts(t *testing.T) {
	for _, name := range []string{"deb-postinst", "deb-prerm", "deb-postrm", "rpm-post", "rpm-preun", "rpm-postun"} {
		script(t, ".", nil, "dash", "-n", filepath.Join("..", "packages", name))
	}
}

// A service that cannot be enabled, such as one that was masked before, does not fail the installation.
func TestMaskedService(t *testing.T) {
	bin := t.TempDir()
	for name, status := range map[string]string{"systemctl": "1", "systemd-sysusers": "0", "deb-systemd-invoke": "1"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nexit "+status+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	says := script(t, ".", []string{"PATH=" + bin + ":" + os.Getenv("PATH")}, "dash", "-c",
		"dash ../packages/deb-postinst configure '' 2>&1")
	if !strings.Contains(says, "weir.service is not enabled") {
		t.Error(says)
	}
}

// A release is signed only by a key that the repository has, and a file that was changed is noticed.
func TestSign(t *testing.T) {
	dir := t.TempDir()
	for _, key := range []string{"ours", "other"} {
		script(t, dir, nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key)
	}
	allowed := filepath.Join(dir, "allowed")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("allowed", `release@weir namespaces="weir-release" `+read(t, dir, "ours.pub"))
	write("SHA256SUMS", "0123  weir\n")
	sign := filepath.Join("..", "..", "scripts", "release-sign.sh")
	for key, signers := range map[string]string{"other": allowed, "ours": "../release/allowed_signers"} {
		out, err := exec.CommandContext(t.Context(), sign, dir, filepath.Join(dir, key), signers).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "is not the key of releases") {
			t.Errorf("%s signs: %v, %s", key, err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "SHA256SUMS.sig")); err == nil {
			t.Errorf("the signature of %s stays", key)
		}
	}
	script(t, ".", nil, sign, dir, filepath.Join(dir, "ours"), allowed)
	verify := `ssh-keygen -Y verify -f allowed -I release@weir -n weir-release -s SHA256SUMS.sig <SHA256SUMS`
	script(t, dir, nil, "bash", "-c", verify)
	write("SHA256SUMS", "4567  weir\n")
	script(t, dir, nil, "bash", "-c", "! "+verify)
}

// The workflow that a tag starts finds each target that it makes.
func TestWorkflow(t *testing.T) {
	makefile := read(t, "..", "..", "Makefile")
	made := regexp.MustCompile(`(?m)\bmake ([a-z -]+)`).FindAllStringSubmatch(
		read(t, "..", "..", ".github", "workflows", "release.yml"), -1)
	if len(made) < 6 {
		t.Errorf("it makes %q", made)
	}
	for _, m := range made {
		for _, target := range strings.Fields(m[1]) {
			if !strings.Contains(makefile, "\n"+target+": ") {
				t.Errorf("there is no target %q", target)
			}
		}
	}
}

// What the tests install and start has neither the key of releases nor the right to publish.
func TestWorkflowRights(t *testing.T) {
	var flow struct {
		Permissions map[string]string
		Jobs        map[string]struct {
			Needs, Environment string
			Permissions        map[string]string
			Steps              []struct {
				Uses string
				With map[string]any
			}
		}
	}
	text := read(t, "..", "..", ".github", "workflows", "release.yml")
	if err := yaml.Unmarshal([]byte(text), &flow); err != nil {
		t.Fatal(err)
	}
	tests, publish := flow.Jobs["test"], flow.Jobs["publish"]
	if len(flow.Permissions) > 0 || len(tests.Permissions) != 1 || tests.Permissions["contents"] != "read" {
		t.Errorf("the tests may more than read: %v, %v", flow.Permissions, tests.Permissions)
	}
	if publish.Needs != "test" || publish.Environment == "" || tests.Environment != "" {
		t.Errorf("publish needs %q, in %q; the tests are in %q", publish.Needs, publish.Environment, tests.Environment)
	}
	_, after, _ := strings.Cut(text, "\n  publish:\n")
	if strings.Count(text, "secrets.") != strings.Count(after, "secrets.") {
		t.Error("the tests have secrets")
	}
	for name, job := range flow.Jobs {
		for _, step := range job.Steps {
			if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
				t.Errorf("%s leaves its token in the clone", name)
			}
		}
	}
}

// A version with a - is a pre-release, which is not the latest one.
func TestPrerelease(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "gh"), []byte("#!/bin/sh\necho $*\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]bool{"v1.2.3-rc.1": true, "v1.2.3": false} {
		says := script(t, ".", []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "VERSION=" + version}, "make", "-s",
			"-C", filepath.Join("..", ".."), "release-publish")
		if !strings.Contains(says, "release create "+version+" ") || strings.Contains(says, "--prerelease") != want {
			t.Errorf("%s: %s", version, says)
		}
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
