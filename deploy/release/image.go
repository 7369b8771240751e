package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// owner is the user of an image, which no machine knows.
const owner = 65532

// imageConfig is what an image says of itself, the same as the last stage of the Dockerfile.
func imageConfig() v1.Config {
	return v1.Config{
		User:         fmt.Sprintf("%d:%d", owner, owner),
		Env:          []string{"WEIR_HTTP_ADDR=:8080", "WEIR_GRPC_ADDR=:8081"},
		ExposedPorts: map[string]struct{}{"8080": {}, "8081": {}, "7946": {}, "7946/udp": {}, "7947": {}},
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/node", "health"}, Interval: 5 * time.Second,
			Timeout: 3 * time.Second, StartPeriod: 15 * time.Second, Retries: 3},
		Entrypoint: []string{"/node"},
	}
}

// image writes the image for a processor, for "docker load": nothing but both programs, the
// authorities of certificates, and directories for volumes. The programs have the time zones.
func (r *release) image(s system) error {
	base, err := r.layer(r.baseEntries)
	if err != nil {
		return err
	}
	programs, err := r.layer(func(w *tar.Writer) error {
		if err := r.addFile(w, "node", 0o755, r.program(s, "weir-node")); err != nil {
			return err
		}
		return r.addFile(w, "weir", 0o755, r.program(s, "weir"))
	})
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, base, programs)
	if err != nil {
		return err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS, config.Created, config.Config = s.arch, s.os, v1.Time{Time: r.at}, imageConfig()
	for i := range config.History {
		config.History[i].Created = v1.Time{Time: r.at}
	}
	config.Config.Labels = map[string]string{
		"org.opencontainers.image.source":   "https://github.com/weirlimit/weir",
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}
	if img, err = mutate.ConfigFile(img, config); err != nil {
		return err
	}
	tag, err := name.NewTag("weir:" + r.version)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(filepath.Join(r.out, "weir_"+r.version+"_image_"+s.arch+".tar"), tag, img)
}

// layer returns the layer with what add adds.
func (r *release) layer(add func(*tar.Writer) error) (v1.Layer, error) {
	var all bytes.Buffer
	w := tar.NewWriter(&all)
	if err := errors.Join(add(w), w.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(all.Bytes())), nil
	})
}

// baseEntries adds what does not change with a version.
func (r *release) baseEntries(w *tar.Writer) error {
	for _, dir := range []string{"etc", "etc/ssl", "etc/ssl/certs", "bin"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: r.at}); err != nil {
			return err
		}
	}
	var authorities bytes.Buffer
	for root := range bundle.Roots() {
		if err := pem.Encode(&authorities, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return err
		}
	}
	if err := r.add(w, "etc/ssl/certs/ca-certificates.crt", 0o644, authorities.Bytes()); err != nil {
		return err
	}
	// Called by this name the node serves by the environment of envoyproxy/ratelimit.
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/ratelimit", Linkname: "/node", Mode: 0o777,
		ModTime: r.at}); err != nil {
		return err
	}
	// Volumes that are mounted there get this owner from here.
	for _, dir := range []string{"keys", "authority", "data", "members", "members/node-1", "members/node-2",
		"members/node-3", "members/node-4"} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, Uid: owner, Gid: owner,
			ModTime: r.at}); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) addFile(w *tar.Writer, in string, mode int64, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return r.add(w, in, mode, data)
}

func (r *release) add(w *tar.Writer, in string, mode int64, data []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: in, Mode: mode, Size: int64(len(data)), ModTime: r.at}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// push sends the images of a release to a registry, under one name for all processors. Who may do
// that is looked up where "docker login" writes it.
func push(ctx context.Context, out, to string) error {
	ref, err := name.NewTag(to, name.StrictValidation)
	if err != nil {
		return fmt.Errorf("the name %q of the image is not valid: give REGISTRY/NAME:TAG: %w", to, err)
	}
	paths, err := filepath.Glob(filepath.Join(out, "weir_*_image_*.tar"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("%s has no images: make a release first", out)
	}
	var parts []mutate.IndexAddendum
	for _, path := range paths {
		img, err := tarball.ImageFromPath(path, nil)
		if err != nil {
			return fmt.Errorf("image %s: %w", path, err)
		}
		arch := strings.TrimSuffix(path[strings.LastIndex(path, "_")+1:], ".tar")
		parts = append(parts, mutate.IndexAddendum{Add: img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	index := mutate.AppendManifests(empty.Index, parts...)
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(ctx),
		remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return fmt.Errorf("image %s cannot be sent: %w", ref, err)
	}
	fmt.Printf("%s@%s\n", ref, digest)
	return nil
}
