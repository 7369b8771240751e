package cli

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirlimit/weir/cmd/weir/internal/term"
	"github.com/weirlimit/weir/internal/commandline"
	"github.com/weirlimit/weir/internal/console"
	"github.com/weirlimit/weir/internal/overrides"
)

func (a *app) overrideCommand() *cobra.Command {
	var server adminFlags
	cmd := &cobra.Command{
		Use:   "override",
		Short: "Deny, limit or free one user at once, on all members",
		Long: `An override decides for one user in place of a rule's limits, on all members of a
cluster, until it ends: without --for after 24 hours. Quotas on which the rule draws,
and other rules that match, still count. With --ip it is for all requests from an
address, but of users that have an override of their own; an address of IPv6 stands
for its /64. A rule in shadow denies nothing, so an override of it is refused.
Nodes that count in Redis do not tell each other: set it on each of them.

A node takes it from callers with the permissions admin and override, and without a
permissions file from its own machine.`,
		Example: `  weir override set --rule login --ip 192.0.2.66 --deny --for 2h --why "guesses passwords"
  weir override set --rule api --user ada --limit 10/minute --why "runs a migration"
  weir override list
  weir override remove --rule api --user ada`,
		Args: commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return usage(cmd, "give one of set, list and remove")
		},
	}
	server.addFlags(cmd.PersistentFlags())
	cmd.AddCommand(a.overrideSet(&server), a.overrideList(&server), a.overrideRemove(&server))
	return cmd
}

// needsWhom is the error for an override that is about nobody, or about two.
const needsWhom = "an override is about a user or an address, and a rule: give --rule and one of --user and --ip"

func (a *app) overrideSet(server *adminFlags) *cobra.Command {
	var w console.Wanted
	var last time.Duration
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set --rule RULE (--user USER | --ip ADDRESS) (--deny | --limit N/WINDOW | --unlimited) --why TEXT",
		Short: "Put an override in force",
		Args: func(cmd *cobra.Command, args []string) error {
			n := 0
			for _, is := range []bool{w.Deny, w.Unlimited, w.Limit != ""} {
				if is {
					n++
				}
			}
			switch {
			case w.Rule == "" || (w.User == "") == (w.IP == ""):
				return usage(cmd, needsWhom)
			case n != 1:
				return usage(cmd, "give one of --deny, --limit and --unlimited")
			case w.Why == "":
				return usage(cmd, "--why is kept with the override, for whoever finds it later: give a reason")
			case last < time.Second || last > overrides.MaxFor:
				return usage(cmd, "--for %v is out of range: give 1s to %v", last, overrides.MaxFor)
			}
			return commandline.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			w.For = last.String()
			return a.askOverrides(cmd, server, http.MethodPost, "/v1/overrides/set", w, asJSON)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&w.Rule, "rule", "", "of this `RULE`")
	f.StringVar(&w.User, "user", "", "for this `USER`")
	f.StringVar(&w.IP, "ip", "", "for requests from this `ADDRESS`")
	f.StringVar(&w.Tenant, "tenant", "", "of this `TENANT`")
	f.BoolVar(&w.Deny, "deny", false, "deny every request")
	f.StringVar(&w.Limit, "limit", "", "this `LIMIT` in place of the rule's, such as 10/minute")
	f.BoolVar(&w.Unlimited, "unlimited", false, "no limit in place of the rule's")
	f.DurationVar(&last, "for", overrides.DefaultFor, "ends after this `TIME`")
	f.StringVar(&w.Why, "why", "", "the `REASON`, which is kept with it and in the audit")
	f.BoolVar(&asJSON, "json", false, "print an object")
	return cmd
}

func (a *app) overrideRemove(server *adminFlags) *cobra.Command {
	var w console.Wanted
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "remove --rule RULE (--user USER | --ip ADDRESS)",
		Short: "End an override",
		Args: func(cmd *cobra.Command, args []string) error {
			if w.Rule == "" || (w.User == "") == (w.IP == "") {
				return usage(cmd, needsWhom)
			}
			return commandline.NoArgs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.askOverrides(cmd, server, http.MethodPost, "/v1/overrides/remove", w, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&w.Rule, "rule", "", "of this `RULE`")
	f.StringVar(&w.User, "user", "", "for this `USER`")
	f.StringVar(&w.IP, "ip", "", "for requests from this `ADDRESS`")
	f.StringVar(&w.Tenant, "tenant", "", "of this `TENANT`")
	f.BoolVar(&asJSON, "json", false, "print an object")
	return cmd
}

func (a *app) overrideList(server *adminFlags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the overrides in force",
		Args:  commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.askOverrides(cmd, server, http.MethodGet, "/v1/overrides", nil, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an object")
	return cmd
}

// askOverrides asks a node to set or remove an override, or for none with nil, and prints those in force then.
func (a *app) askOverrides(cmd *cobra.Command, server *adminFlags, method, path string, w any, asJSON bool) error {
	var out console.Overrides
	if err := a.askAdmin(cmd, server, method, path, w, &out); err != nil {
		return err
	}
	return a.show(asJSON, &out, overridesText(&out, a.OutStyle))
}

func overridesText(out *console.Overrides, style term.Style) string {
	if len(out.Overrides) == 0 {
		return "no override is in force\n"
	}
	var t term.Table
	t.Head(style.Bold, "user or address", "rule", "in force", "until (UTC)", "by", "why")
	for i := range out.Overrides {
		e := &out.Overrides[i]
		user := e.About()
		if e.Tenant != "" {
			user = e.Tenant + ": " + user
		}
		by := e.By
		if e.ToldBy != "" {
			by = strings.TrimSpace(by + " (as " + e.ToldBy + " says)")
		}
		t.Texts(nil, term.Clean(user), term.Clean(e.Rule), term.Clean(e.What()),
			e.Until.UTC().Format("2006-01-02 15:04:05"), term.Clean(by), term.Clean(e.Why))
	}
	text := t.String()
	if out.Only != "" {
		text += "\n" + term.Clean(out.Only) + "\n"
	}
	return text
}

func (a *app) rulesCommand() *cobra.Command {
	var server adminFlags
	var asJSON, file bool
	cmd := &cobra.Command{
		Use:   "rules [--server ADDRESS]",
		Short: "Show the rules in force, and which member has which",
		Long: `Shows the rules that a node has in force, which version each member of its cluster
has and since when, and what the last reload changed. --file prints the rules file
alone, as it was loaded.

Exit status: 0 done, 1 failed, 2 the node cannot be asked.`,
		Example: `  weir rules
  weir rules --file > rules.yaml`,
		Args: commandline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out console.Rules
			if err := a.askAdmin(cmd, &server, http.MethodGet, "/v1/rules", nil, &out); err != nil {
				return err
			}
			if file {
				return a.show(asJSON, &out, out.File)
			}
			return a.show(asJSON, &out, rulesText(&out, a.OutStyle))
		},
	}
	server.addFlags(cmd.Flags())
	cmd.Flags().BoolVar(&file, "file", false, "print the rules file alone")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an object")
	return cmd
}

func rulesText(out *console.Rules, style term.Style) string {
	var b strings.Builder
	var t term.Table
	t.Head(style.Bold, "rule", "line", "limits")
	for i := range out.Rules {
		r := &out.Rules[i]
		text := strings.Join(r.Limits, "; ")
		switch {
		case r.Deny:
			text = "denies every request"
		case r.Unlimited:
			text = "no limit"
		}
		if len(r.Quotas) > 0 {
			text += "; draws on " + strings.Join(r.Quotas, ", ")
		}
		if r.Shadow {
			text += "; in shadow"
		}
		t.Texts(nil, term.Clean(r.Name), fmt.Sprint(r.Line), term.Clean(text))
	}
	if len(out.Rules) == 0 {
		b.WriteString("no rules are in force: every request is allowed\n")
	} else {
		b.WriteString(t.String())
	}
	b.WriteByte('\n')
	for _, m := range out.Members {
		fmt.Fprintf(&b, "%s has version %s since %s\n", term.Clean(m.Member), m.Hash,
			m.Since.UTC().Format("2006-01-02 15:04:05 UTC"))
		if len(m.Changed) > 0 {
			b.WriteString("  the last reload: " + term.Clean(strings.Join(m.Changed, ", ")) + "\n")
		}
	}
	if !out.Same {
		b.WriteString("the members do not have the same rules\n")
	}
	for _, m := range out.Missing {
		fmt.Fprintf(&b, "%s is missing, as %s\n", term.Clean(m.Member), term.Clean(m.Why))
	}
	for _, w := range out.Warnings {
		fmt.Fprintf(&b, "warning: line %d: %s\n", w.Line, term.Clean(w.Text))
	}
	return b.String()
}
