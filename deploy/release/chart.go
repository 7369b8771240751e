package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"
)

// chartVersion matches the two versions in Chart.yaml.
var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion):.*$`)

// chart writes the chart, with the version of the release, and index.yaml: a directory with both is
// a repository of charts. "helm package" would write the time of day into it.
func (r *release) chart() error {
	dir := filepath.Join(r.root, "deploy", "helm", "weir")
	var entries []entry
	var about []byte
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		within, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if within == "Chart.yaml" {
			data = chartVersion.ReplaceAll(data, []byte("${1}: "+`"`+r.version+`"`))
			about = data
		}
		entries = append(entries, entry{name: filepath.ToSlash(within), mode: 0o644, data: data})
		return nil
	})
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if err := compressedTar(&packed, "weir", entries, r.at); err != nil {
		return err
	}
	file := "weir-" + r.version + ".tgz"
	err = writeFile(filepath.Join(r.out, file), func(w io.Writer) error {
		_, err := w.Write(packed.Bytes())
		return err
	})
	if err != nil {
		return err
	}
	listed := map[string]any{}
	if err := yaml.Unmarshal(about, &listed); err != nil {
		return fmt.Errorf("chart at %s: %w", dir, err)
	}
	listed["digest"] = fmt.Sprintf("%x", sha256.Sum256(packed.Bytes()))
	listed["urls"] = []string{file}
	listed["created"] = r.at.Format(time.RFC3339)
	return writeFile(filepath.Join(r.out, "index.yaml"), func(w io.Writer) error {
		return yaml.NewEncoder(w).Encode(map[string]any{
			"apiVersion": "v1", "generated": r.at.Format(time.RFC3339), "entries": map[string]any{"weir": []any{listed}},
		})
	})
}
