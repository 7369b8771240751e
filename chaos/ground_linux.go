package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirlimit/weir/chaos/docker"
	"github.com/weirlimit/weir/chaos/fleet"
	"github.com/weirlimit/weir/chaos/netlab"
	"github.com/weirlimit/weir/chaos/tool"
)

// find chooses where nodes run, and builds what they run there. What is built is
// gone when release was called.
func (o *options) find(ctx context.Context, dir *tool.Dir) (release func() error, err error) {
	switch o.on {
	case "", "namespaces", "loopback":
	case "docker":
		return o.containers(ctx, dir)
	default:
		return nil, fmt.Errorf("-on %s is none: give namespaces, loopback or docker, or leave it out", o.on)
	}
	if o.image != "" || o.standIn {
		return nil, errors.New("-image and -stand-in are of containers: give -on docker too")
	}
	why := netlab.Usable()
	if o.on == "namespaces" && why != nil {
		return nil, fmt.Errorf("no namespaces, since %w", why)
	}
	if o.binary, err = program(ctx, dir, o.binary); err != nil {
		return nil, err
	}
	o.ground = fleet.Namespaces{Binary: o.binary}
	if o.on == "loopback" || why != nil {
		if o.on == "" {
			fmt.Printf("No namespaces, since %v: on loopback, and only what that allows.\n", why)
		}
		o.ground = fleet.Loopback{Binary: o.binary}
	}
	return func() error { return nil }, nil
}

// program returns the absolute path of the node program, which is built unless it is
// named.
func program(ctx context.Context, dir *tool.Dir, named string) (string, error) {
	if named == "" {
		named = filepath.Join(dir.Path, "node")
		build := dir.Go(ctx, "build", "-o", named, "./cmd/node")
		build.Stderr = os.Stderr
		switch err := build.Run(); {
		case ctx.Err() != nil:
			return "", fmt.Errorf("interrupted while the node program was built: %w", ctx.Err())
		case err != nil:
			return "", fmt.Errorf("the node program cannot be built, is this the module's root? %w", err)
		}
		return named, nil
	}
	path, err := filepath.Abs(named)
	if err != nil {
		return "", err
	}
	switch i, err := os.Stat(path); {
	case err != nil:
		return "", fmt.Errorf("there is no node program where -node says: %w", err)
	case !i.Mode().IsRegular() || i.Mode()&0o111 == 0:
		return "", fmt.Errorf("-node is the path of the node program, and %s is none: it is %v", path, i.Mode())
	}
	return path, nil
}

// containers has nodes run as docker-compose.yaml says.
func (o *options) containers(ctx context.Context, dir *tool.Dir) (release func() error, err error) {
	if o.binary != "" {
		return nil, errors.New("-node is of processes: containers run an image, which -image names")
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(root, "docker-compose.yaml")); err != nil {
		return nil, fmt.Errorf("there is no docker-compose.yaml, is this the module's root? %w", err)
	}
	engine, err := docker.Find(ctx)
	if err != nil {
		return nil, err
	}
	g := fleet.Containers{Engine: engine, Image: o.image, Root: root, Project: fmt.Sprintf("weirchaos%d", os.Getpid())}
	o.ground = g
	if o.image != "" {
		if _, err := engine.Output(ctx, "image", "inspect", o.image); err != nil {
			return nil, fmt.Errorf("the image of -image is not there: %w", err)
		}
		guard, err := docker.Watch(g.Project, os.DevNull)
		if err != nil {
			return nil, err
		}
		return guard.Release, nil
	}
	g.Image = fmt.Sprintf("weirchaos:%d", os.Getpid())
	o.ground = g
	made := []string{g.Image}
	log := filepath.Join(dir.Path, "build.log")
	missing := engine.Have(ctx, docker.GoImage)
	if missing != nil {
		if !o.standIn {
			return nil, fmt.Errorf("%w; it is what the Dockerfile builds with.\nBring it here (docker save and docker load), "+
				"or name an image that is built with -image, "+
				"or have one made of this machine's own Go with -stand-in", missing)
		}
		made = append(made, docker.GoImage)
	}
	guard, err := docker.Watch(g.Project, log, made...)
	if err != nil {
		return nil, err
	}
	release = func() error {
		return errors.Join(engine.Forget(context.Background(), log, made...), guard.Release())
	}
	if missing != nil {
		fmt.Printf("%v: a stand-in is made of this machine's own Go.\n", missing)
		if err := engine.StandIn(ctx, docker.GoImage); err != nil {
			return nil, errors.Join(err, release())
		}
	}
	fmt.Println("The image is built by the Dockerfile, which takes a minute or more.")
	if err := engine.Build(ctx, root, g.Image, "v0.0.0-chaos", log); err != nil {
		return nil, errors.Join(err, release())
	}
	return release, nil
}
