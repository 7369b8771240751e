// Command sbom prints the bill of materials of Go programs, as CycloneDX 1.6 in JSON: what each
// was linked from, as its build information says. The same program gives the same bytes.
//
//	go run ./deploy/sbom PROGRAM >PROGRAM.cdx.json
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("%d arguments are given: give the path of one program", len(args))
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return err
	}
	sum, err := sumOf(args[0])
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(materials(filepath.Base(args[0]), sum, info))
}

// sumOf returns the SHA-256 of a file, in hexadecimal.
func sumOf(path string) (sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// The parts of a document of CycloneDX 1.6 that are used.
type (
	document struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   metadata    `json:"metadata"`
		Components []component `json:"components"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version,omitempty"`
		PURL       string     `json:"purl,omitempty"`
		Hashes     []hash     `json:"hashes,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	hash struct {
		Algorithm string `json:"alg"`
		Content   string `json:"content"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// materials is the bill of a program: its modules and Go's standard library.
func materials(name, sum string, info *debug.BuildInfo) document {
	program := module("application", &info.Main)
	program.Name, program.Ref = name, name
	program.Hashes = []hash{{"SHA-256", sum}}
	for _, s := range info.Settings {
		program.Properties = append(program.Properties, property{"go:build:" + s.Key, s.Value})
	}
	all := []component{module("library", &debug.Module{Path: "stdlib",
		Version: "v" + strings.TrimPrefix(info.GoVersion, "go")})}
	for _, m := range info.Deps {
		all = append(all, module("library", m))
	}
	return document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{program}, Components: all}
}

// module is the component of a module, or of what replaces it.
func module(kind string, m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	c := component{Type: kind, Name: m.Path, Version: m.Version}
	c.PURL = "pkg:golang/" + m.Path
	if m.Version != "" {
		c.PURL += "@" + url.PathEscape(m.Version)
	}
	c.Ref = c.PURL
	if m.Sum != "" {
		c.Properties = []property{{"go:sum", m.Sum}}
	}
	return c
}
