package app

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/internal/spelling"
)

// positive is a flag with a number above 0.
type positive int

func (p *positive) String() string { return strconv.Itoa(int(*p)) }
func (p *positive) Type() string   { return "N" }
func (p *positive) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("give a whole number above 0")
	}
	*p = positive(n)
	return nil
}

// size is a flag with a number of bytes; 0 is auto, and -1 none.
type size int64

// minSize is the smallest size that a node accepts.
const minSize = 8 << 20

func (s *size) String() string {
	switch {
	case *s == 0:
		return "auto"
	case *s < 0:
		return "none"
	}
	return strconv.FormatInt(int64(*s), 10)
}
func (s *size) Type() string { return "SIZE" }
func (s *size) Set(text string) error {
	switch text {
	case "auto":
		*s = 0
		return nil
	case "none":
		*s = -1
		return nil
	}
	number, unit := text, int64(1)
	for _, u := range []struct {
		name string
		unit int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9},
		{"TB", 1e12}, {"B", 1}} {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = n, u.unit
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 1 || n > 1<<50/unit || n*unit < minSize {
		return errors.New("give a size of 8MiB or more, such as 512MiB or 2GB, auto for 256 bytes for each of --max-keys, " +
			"or none for no bound")
	}
	*s = size(n * unit)
	return nil
}

// choice is a flag with one of several words.
type choice struct {
	value string
	all   []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.all, "|") }
func (c *choice) Set(text string) error {
	if !slices.Contains(c.all, strings.ToLower(text)) {
		return fmt.Errorf("give one of %s", strings.Join(c.all, ", "))
	}
	c.value = strings.ToLower(text)
	return nil
}

// envPrefix is the prefix of environment variables.
const envPrefix = "WEIR_"

// toolPrefix is the prefix of those of the operator's tool, which may be set beside them.
const toolPrefix = "WEIR_TOOL_"

// envName returns the environment variable of a flag: WEIR_HTTP_ADDR for --http-addr.
func envName(flag string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// kubernetesName matches the variables that Kubernetes sets in every container of a
// namespace with a service whose name begins with weir.
var kubernetesName = regexp.MustCompile(`^WEIR_([A-Z0-9_]+_)?(SERVICE_HOST|` +
	`SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// readEnvironment sets the flags of cmd that the command line does not set from the
// environment; an empty variable counts as unset. It returns warnings about variables
// that belong to no flag in all.
func readEnvironment(cmd *cobra.Command, environ, all []string) (warnings []string, err error) {
	known := make([]string, len(all))
	for i, flag := range all {
		known[i] = envName(flag)
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, envPrefix) || strings.HasPrefix(name, toolPrefix) || kubernetesName.MatchString(name) {
			continue
		}
		i := slices.Index(known, name)
		if i < 0 {
			warnings = append(warnings, unknownVariable(name, known))
			continue
		}
		f := cmd.Flags().Lookup(all[i])
		if f == nil || f.Changed || value == "" {
			continue
		}
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			if inner := errors.Unwrap(err); inner != nil {
				err = inner
			}
			return nil, usage(cmd, "%s=%q in the environment: %s", name, value, spelling.Want(err))
		}
	}
	slices.Sort(warnings)
	return warnings, nil
}

func unknownVariable(name string, known []string) string {
	if near := commandline.Nearest(name, known); near != "" {
		return fmt.Sprintf("there is no setting %s: did you mean %s?", name, near)
	}
	return fmt.Sprintf("there is no setting %s", name)
}

// settings returns the names of all flags that the environment may set.
func settings() []string {
	var out []string
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	newOptions().addServeFlags(f)
	f.VisitAll(func(f *pflag.Flag) { out = append(out, f.Name) })
	return out
}
