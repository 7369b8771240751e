package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// entry is a file of an archive: from a file of the machine, else of the bytes.
type entry struct {
	name string
	mode int64
	path string
	data []byte
}

func (e entry) read() ([]byte, error) {
	if e.path == "" {
		return e.data, nil
	}
	return os.ReadFile(e.path)
}

// archive writes both programs for a system with their manual pages, completions and the license:
// a zip for Windows, else a compressed tar.
func (r *release) archive(s system) error {
	var entries []entry
	for _, name := range []string{"weir", "weir-node"} {
		program := r.program(s, name)
		entries = append(entries, entry{name: filepath.Base(program), mode: 0o755, path: program})
	}
	entries = append(entries, entry{name: "LICENSE", mode: 0o644, path: filepath.Join(r.root, "LICENSE")},
		entry{name: "rules.yaml", mode: 0o644, path: filepath.Join(r.root, "deploy", "packages", "rules.yaml")})
	shared := []string{"weir.1", "weir-node.1", "weir.bash", "weir-node.bash", "_weir", "_weir-node", "weir.fish",
		"weir-node.fish"}
	if s.os == "windows" {
		shared = []string{"weir.ps1", "weir-node.ps1"}
	}
	for _, name := range shared {
		entries = append(entries, entry{name: "share/" + name, mode: 0o644, path: r.share(name)})
	}
	base := "weir_" + r.version + "_" + s.String()
	if s.os == "windows" {
		return writeFile(filepath.Join(r.out, base+".zip"), func(w io.Writer) error { return zipped(w, base, entries, r.at) })
	}
	return writeFile(filepath.Join(r.out, base+".tar.gz"), func(w io.Writer) error {
		return compressedTar(w, base, entries, r.at)
	})
}

// compressedTar writes entries below the directory base.
func compressedTar(out io.Writer, base string, entries []entry, at time.Time) error {
	squeeze := gzip.NewWriter(out)
	w := tar.NewWriter(squeeze)
	for _, e := range entries {
		data, err := e.read()
		if err != nil {
			return err
		}
		h := &tar.Header{Name: path.Join(base, e.name), Mode: e.mode, Size: int64(len(data)), ModTime: at}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return squeeze.Close()
}

func zipped(out io.Writer, base string, entries []entry, at time.Time) error {
	w := zip.NewWriter(out)
	for _, e := range entries {
		data, err := e.read()
		if err != nil {
			return err
		}
		f, err := w.CreateHeader(&zip.FileHeader{Name: path.Join(base, e.name), Method: zip.Deflate, Modified: at})
		if err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
	}
	return w.Close()
}

// writeFile makes a file of what write writes.
func writeFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	return write(f)
}
