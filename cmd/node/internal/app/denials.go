package app

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/cmd/node/internal/server"
	"github.com/weirlimit/weir/internal/denials"
)

type denialOptions struct {
	bytes memory
	names choice
	log   string
}

func newDenialOptions() denialOptions {
	return denialOptions{bytes: denials.DefaultBytes, names: choice{"plain", []string{"plain", "hash", "off"}}}
}

func (o *denialOptions) addFlags(f *pflag.FlagSet) {
	f.Var(&o.bytes, "denial-bytes", "keep the last denials in at most `SIZE` of memory; 0 keeps none")
	f.Var(&o.names, "denial-names", "`HOW` names are kept there, which are personal data: plain, hash or off")
	f.StringVar(&o.log, "denial-log", "", "append denials to `FILE`, or stderr: of each key one line a second")
}

func (o *denialOptions) validate(cmd *cobra.Command) error {
	if o.bytes == 0 && o.log != "" {
		return usage(cmd, "--denial-log needs the record of denials: leave out --denial-bytes 0")
	}
	return nil
}

func (o *denialOptions) config() server.DenialsConfig {
	names := map[string]denials.Names{"plain": denials.Plain, "hash": denials.Hashed, "off": denials.Off}
	return server.DenialsConfig{Bytes: int64(o.bytes), Names: names[o.names.value], Log: o.log}
}

// memory is a flag with a size; 0 is none.
type memory int64

func (m *memory) String() string { return strconv.FormatInt(int64(*m), 10) }
func (m *memory) Type() string   { return "SIZE" }
func (m *memory) Set(text string) error {
	if text == "0" {
		*m = 0
		return nil
	}
	var s size
	if err := s.Set(text); err != nil || s <= 0 {
		return errors.New("give a size of 8MiB or more, such as 64MiB, or 0 for none")
	}
	*m = memory(s)
	return nil
}
