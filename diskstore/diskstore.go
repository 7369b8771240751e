// Package diskstore keeps the counters of a member of a cluster in a directory, so that they survive the end of all
// members. A program that does not import it compiles none of it.
package diskstore

import (
	"cmp"

	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/disk"
	"github.com/weirlimit/weir/internal/peer"
)

// Dir is a directory for the Store of a cluster.Config. It belongs to one member: a second process that opens it gets
// an error, and so does a member of another name, cluster or secret, unless that is its second one.
type Dir struct {
	// Path is the directory. It is made with mode 0700 if it does not exist.
	Path string
	// Discard sets aside what the directory has, whosever it is, under names that end in ".discarded". The member starts
	// without it. Default false.
	Discard bool
}

// Open opens the directory for a member. The cluster calls it.
func (d Dir) Open(cluster, member, secret, second string) (core.Store, error) {
	return OpenConfig(disk.Config{Dir: cmp.Or(d.Path, "."), Discard: d.Discard,
		Identity: disk.Identity{Cluster: cluster, Member: member, Secret: secret, Second: second}})
}

// OpenConfig opens what a configuration names, which need not be a directory. It is for tests.
func OpenConfig(c disk.Config) (core.Store, error) {
	s, err := disk.Open(c)
	if err != nil {
		return nil, err
	}
	return opened{s}, nil
}

type opened struct{ *disk.Store }

func (o opened) Read(take func(*peer.Record) error) (errs []error) {
	for _, d := range o.Store.Read(take) {
		errs = append(errs, d)
	}
	return errs
}

func (o opened) Written() int64 { return o.Store.Written }
