// Command site builds the documentation site from the Markdown pages of the repository. It is a
// module of its own, so that the browser which tests the site is no dependency of Weir.
//
//	go run . DIR
//
// It needs mkdocs and its Material theme, and no network.
package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// sources is where links lead to what is in the repository and not on the site.
const sources = "https://github.com/weirlimit/weir"

//go:embed mkdocs.yml
var config string

// sections are the headings of the navigation, and the pages below each, as patterns. Pages that
// no pattern names stand below the last heading.
var sections = []struct {
	title string
	pages []string
}{
	{"Start", []string{"README.md", "docs/promises.md", "docs/rules.md", "docs/algorithms.md",
		"docs/embed.md", "docs/clients.md", "docs/charges.md",
		"docs/languages.md"}},
	{"Run", []string{"docs/operations.md", "docs/run.md", "docs/cluster.md", "docs/access.md",
		"docs/metrics.md", "docs/redis.md", "docs/containers.md", "docs/compromised.md", "SECURITY.md"}},
	{"Protocols", []string{"docs/envoy.md", "docs/proxies.md", "docs/redis-protocol.md", "docs/gubernator.md"}},
	{"How it works", []string{"ARCHITECTURE.md", "docs/protocol.md", "docs/decisions.md", "docs/testing.md",
		"docs/chaos.md",
		"docs/benchmarks*.md"}},
	{"Project", []string{"docs/status.md", "CHANGELOG.md", "CONTRIBUTING.md"}},
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: site DIR")
		os.Exit(2)
	}
	if err := build(context.Background(), os.DirFS("../.."), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// build makes the site of a repository in the directory out. What mkdocs warns of, such as a link
// to a page that does not exist, is an error.
func build(ctx context.Context, repo fs.FS, out string) (err error) {
	out, err = filepath.Abs(out)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "weir-site-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	files, err := published(repo)
	if err != nil {
		return err
	}
	for _, f := range files {
		text, err := fs.ReadFile(repo, f)
		if err != nil {
			return err
		}
		if path.Ext(f) == ".md" {
			text = []byte(page(repo, files, f, string(text)))
		}
		to := filepath.Join(work, "pages", filepath.FromSlash(f))
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, text, 0o644)); err != nil {
			return err
		}
	}
	file := filepath.Join(work, "mkdocs.yml")
	text := fmt.Sprintf("%sdocs_dir: pages\nsite_dir: %q\n%s", config, out, nav(files))
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	if said, err := exec.CommandContext(ctx, "mkdocs", "build", "--strict", "--quiet", "--clean", "-f",
		file).CombinedOutput(); err != nil {
		return fmt.Errorf("mkdocs (Debian packages mkdocs and mkdocs-material): %w\n%s", err, said)
	}
	return nil
}

// published lists the files of the site: the pages at the top, and what is in docs.
func published(repo fs.FS) ([]string, error) {
	files, err := fs.Glob(repo, "*.md")
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(repo, "docs", func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case p == "docs/site":
			return fs.SkipDir
		case !d.IsDir():
			files = append(files, p)
		}
		return nil
	})
	return files, err
}

// nav returns the navigation, with each page once.
func nav(files []string) string {
	var b strings.Builder
	b.WriteString("nav:\n")
	var left []string
	for _, f := range files {
		if path.Ext(f) == ".md" {
			left = append(left, f)
		}
	}
	for i, s := range sections {
		var in []string
		for _, pattern := range s.pages {
			left = slices.DeleteFunc(left, func(f string) bool {
				ok, _ := path.Match(pattern, f)
				if ok {
					in = append(in, f)
				}
				return ok
			})
		}
		if i == len(sections)-1 {
			in = append(in, left...)
		}
		fmt.Fprintf(&b, "  - %q:\n", s.title)
		for _, f := range in {
			fmt.Fprintf(&b, "      - %s\n", f)
		}
	}
	return b.String()
}

var (
	link   = regexp.MustCompile(`(\]\()([^)\s#]+)((?:#[^)\s]*)?\))`)
	nested = regexp.MustCompile(`^ {2,3}((?:[-*]|\d+\.) )`)
)

// page returns the text of a page as the site needs it: links to files that are not on the site
// lead to the repository, and lists within lists are indented as mkdocs reads them.
func page(repo fs.FS, files []string, name, text string) string {
	lines, code := strings.Split(text, "\n"), false
	for i, line := range lines {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		if code {
			continue
		}
		line = nested.ReplaceAllString(line, "    $1")
		lines[i] = link.ReplaceAllStringFunc(line, func(l string) string {
			m := link.FindStringSubmatch(l)
			to := path.Join(path.Dir(name), m[2])
			if strings.Contains(m[2], ":") || slices.Contains(files, to) {
				return l
			}
			kind := "blob"
			if at, err := fs.Stat(repo, to); err == nil && at.IsDir() {
				kind = "tree"
			}
			return m[1] + sources + "/" + kind + "/main/" + to + m[3]
		})
	}
	return strings.Join(lines, "\n")
}
