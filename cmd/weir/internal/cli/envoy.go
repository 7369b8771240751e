package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/envoy"
	"github.com/weirlimit/weir/internal/envoy/config"
	"github.com/weirlimit/weir/internal/envoy/files"
)

func (a *app) envoyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "envoy",
		Short: "Check files of Envoy's rate limit service",
		Args:  cobra.ArbitraryArgs,
		RunE:  oneOf,
	}
	var merge, ignoreDots bool
	var quotas uint16
	var algorithm string
	check := &cobra.Command{
		Use:   "check DIRECTORY",
		Short: "Check the files that a node serves with --envoy-config",
		Long: `Reads the files in a directory and those below it, in the format of
envoyproxy/ratelimit, and reports the first error. Names that begin with two dots are
left out. With --quotas it also warns of limits that the quota service (--rlqs-addr)
cannot assign to so many Envoys, in the words of the node's log.

Exit status: 0 if all are valid, 1 if not.`,
		Example: `  weir envoy check /etc/ratelimit
  weir envoy check --merge-domains config`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(cmd, "name one directory")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := files.Read(args[0], ignoreDots)
			if err != nil {
				return err
			}
			c, err := config.Parse(found, config.Options{MergeDomains: merge})
			if err != nil {
				return fmt.Errorf("error loading rate limit configs: %w", err)
			}
			by, known := envoy.AlgorithmOf(algorithm)
			if !known {
				return usage(cmd, "--algorithm %q is not valid: give one of %s", algorithm, strings.Join(envoy.Algorithms(), ", "))
			}
			var out []byte
			if quotas > 0 {
				envoy.Unassignable(c, by, uint64(quotas), func(limit, why string) {
					out = fmt.Appendf(out, "warning: %s cannot be assigned to %s as quotas: %s\n", limit,
						term.Plural(int(quotas), "Envoy"), why)
				})
			}
			return a.print(fmt.Appendf(out, "all rate limit configs ok: %s, %s\n", term.Plural(len(found), "file"),
				term.Plural(c.Domains(), "domain")))
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		},
	}
	check.Flags().BoolVar(&merge, "merge-domains", false, "let several files describe one domain")
	check.Flags().BoolVar(&ignoreDots, "ignore-dotfiles", false, "leave out files whose names begin with a dot")
	check.Flags().Uint16Var(&quotas, "quotas", 0, "warn of limits that cannot be assigned to `N` Envoys as quotas")
	check.Flags().StringVar(&algorithm, "algorithm", "fixed_window", "`ALGORITHM` of limits that name none, for --quotas")
	cmd.AddCommand(check)
	return cmd
}
