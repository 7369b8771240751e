package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// packages writes the packages of Debian and of RPM for a processor. Both have the same files, but
// for where zsh looks for completions.
func (r *release) packages(s system) error {
	for _, format := range []struct {
		name     string
		packager nfpm.Packager
		zsh      string
		scripts  nfpm.Scripts
	}{
		{"deb", deb.Default, "/usr/share/zsh/vendor-completions", nfpm.Scripts{
			PostInstall: r.packaged("deb-postinst"), PreRemove: r.packaged("deb-prerm"), PostRemove: r.packaged("deb-postrm")}},
		{"rpm", rpm.DefaultRPM, "/usr/share/zsh/site-functions", nfpm.Scripts{
			PostInstall: r.packaged("rpm-post"), PreRemove: r.packaged("rpm-preun"), PostRemove: r.packaged("rpm-postun")}},
	} {
		info := nfpm.WithDefaults(&nfpm.Info{
			Name: "weir", Arch: s.arch, Platform: s.os, Version: "v" + r.version, VersionSchema: "semver", Release: "1",
			Section: "net", Priority: "optional", License: "Apache-2.0", MTime: r.at,
			Maintainer: "The Weir authors <https://github.com/weirlimit/weir/issues>",
			Homepage:   "https://github.com/weirlimit/weir",
			Description: "peer-to-peer rate limiter\n" +
				"A node decides over HTTP, gRPC and other protocols whether a request may pass;\n" +
				"nodes on several machines count together without a database.",
			Overridables: nfpm.Overridables{
				Contents: r.contents(s, format.zsh), Scripts: format.scripts, Umask: 0o022,
				RPM: nfpm.RPM{BuildHost: "localhost"},
			},
		})
		if err := nfpm.PrepareForPackager(info, format.name); err != nil {
			return fmt.Errorf("package of %s for %s: %w", format.name, s, err)
		}
		// GitHub keeps no ~ in a name, and then the checksums are of files that nobody finds.
		file := filepath.Join(r.out, strings.ReplaceAll(format.packager.ConventionalFileName(info), "~", "-"))
		if err := writeFile(file, func(w io.Writer) error { return format.packager.Package(info, w) }); err != nil {
			return fmt.Errorf("package %s: %w", filepath.Base(file), err)
		}
	}
	return nil
}

// packaged returns the path of a file that packages have.
func (r *release) packaged(name string) string {
	return filepath.Join(r.root, "deploy", "packages", name)
}

// contents returns the files of a package.
func (r *release) contents(s system, zsh string) files.Contents {
	file := func(source, destination string, mode os.FileMode) *files.Content {
		return &files.Content{Source: source, Destination: destination, FileInfo: &files.ContentFileInfo{
			Owner: "root", Group: "root", Mode: mode, MTime: r.at}}
	}
	all := files.Contents{
		file(r.packaged("weir.service"), "/usr/lib/systemd/system/weir.service", 0o644),
		file(r.packaged("sysusers.conf"), "/usr/lib/sysusers.d/weir.conf", 0o644),
		file(filepath.Join(r.root, "LICENSE"), "/usr/share/doc/weir/copyright", 0o644),
	}
	// Directories that go with the package, if no other has them.
	for _, dir := range []string{"/etc/weir", "/usr/share/doc/weir", "/usr/share/fish",
		"/usr/share/fish/vendor_completions.d", zsh} {
		all = append(all, &files.Content{Destination: dir, Type: files.TypeDir,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: 0o755, MTime: r.at}})
	}
	for _, name := range []string{"rules.yaml", "weir.env"} {
		config := file(r.packaged(name), "/etc/weir/"+name, 0o644)
		config.Type = files.TypeConfigNoReplace // stays as an operator has changed it
		all = append(all, config)
	}
	for _, name := range []string{"weir", "weir-node"} {
		all = append(all,
			file(r.program(s, name), "/usr/bin/"+name, 0o755),
			file(r.share(name+".1.gz"), "/usr/share/man/man1/"+name+".1.gz", 0o644),
			file(r.share(name+".bash"), "/usr/share/bash-completion/completions/"+name, 0o644),
			file(r.share("_"+name), zsh+"/_"+name, 0o644),
			file(r.share(name+".fish"), "/usr/share/fish/vendor_completions.d/"+name+".fish", 0o644))
	}
	return all
}
