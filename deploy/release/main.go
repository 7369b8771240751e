// Command release makes, of programs that are compiled, what people install: archives, packages of
// Debian and RPM, images, and the chart with the index of its repository. Equal inputs give equal
// bytes. It is a module of its own, so that Weir needs none of its libraries.
//
//	release VERSION SECONDS PROGRAMS OUT      writes the files of a release into the directory OUT
//	release push OUT REPOSITORY:TAG           sends the images in OUT to a registry, as one
//
// PROGRAMS has a directory for each system, such as linux_amd64, with weir and weir-node, and a
// directory "share" with their manual pages and completions; scripts/release.sh makes it. SECONDS
// since 1970 is the time that all files get.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 3 && args[0] == "push" {
		return push(ctx, args[1], args[2])
	}
	if len(args) != 4 {
		return fmt.Errorf("%d arguments are given: give VERSION SECONDS PROGRAMS OUT, or push OUT REPOSITORY:TAG", len(args))
	}
	seconds, err := strconv.ParseInt(args[1], 10, 64)
	if err != nil {
		return fmt.Errorf("the time %q is not valid: give the seconds since 1970", args[1])
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	r, err := newRelease(args[0], time.Unix(seconds, 0).UTC(), root, args[2], args[3])
	if err != nil {
		return err
	}
	return r.make()
}

// release is what the files of a release are made of.
type release struct {
	version  string    // without the v: 1.2.3
	at       time.Time // of all files
	root     string    // the repository
	programs string
	out      string
	systems  []system
}

// system is what a release is built for: "linux", "amd64".
type system struct{ os, arch string }

func (s system) String() string { return s.os + "_" + s.arch }

// versionForm matches the version of a release, as Semantic Versioning has it, with a v.
var versionForm = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

func newRelease(version string, at time.Time, root, programs, out string) (*release, error) {
	if !versionForm.MatchString(version) {
		return nil, fmt.Errorf("the version %q is not valid: give one such as v0.1.0 or v0.1.0-rc.1", version)
	}
	r := &release{version: version[1:], at: at, root: root, programs: programs, out: out}
	dirs, err := filepath.Glob(filepath.Join(programs, "*_*"))
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		name, arch, _ := strings.Cut(filepath.Base(dir), "_")
		r.systems = append(r.systems, system{name, arch})
	}
	if len(r.systems) == 0 {
		return nil, fmt.Errorf("%s has no directory of programs, such as linux_amd64", programs)
	}
	return r, nil
}

// make writes all files.
func (r *release) make() error {
	for _, s := range r.systems {
		if err := r.archive(s); err != nil {
			return err
		}
		if s.os != "linux" {
			continue
		}
		if err := r.packages(s); err != nil {
			return err
		}
		if err := r.image(s); err != nil {
			return err
		}
	}
	return r.chart()
}

// program returns the path of a program for a system.
func (r *release) program(s system, name string) string {
	if s.os == "windows" {
		name += ".exe"
	}
	return filepath.Join(r.programs, s.String(), name)
}

// share returns the path of a manual page or a completion.
func (r *release) share(name string) string { return filepath.Join(r.programs, "share", name) }
