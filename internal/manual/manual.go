// Package manual writes the manual page of a program from its commands and flags, so that the page
// and --help cannot differ.
package manual

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command returns the command "man", which prints the manual page of its program in roff. --help does
// not list it: packages run it when they are made. print writes to standard output.
func Command(print func(page string) error) *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Print the manual page, in roff",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return print(Page(cmd.Root())) },
	}
}

// Page returns the manual page of a program in roff: its description, its flags, and each command
// that --help lists.
func Page(root *cobra.Command) string {
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	var p page
	name := root.Name()
	version, _, _ := strings.Cut(strings.TrimPrefix(root.Version, name+" "), " ")
	p.line(".TH", quoted(strings.ToUpper(name)), "1", `""`, quoted(name+" "+version), `"Weir"`)
	p.line(".SH NAME")
	p.text(name + " - " + strings.ToLower(root.Short[:1]) + root.Short[1:])
	p.line(".SH SYNOPSIS")
	p.line(`\fB` + escaped(name) + `\fR [\fIcommand\fR] [\fIflags\fR] [\fIarguments\fR]`)
	p.line(".SH DESCRIPTION")
	p.prose(root.Long)
	if flags := flagsOf(root); len(flags) > 0 {
		p.line(".SH OPTIONS")
		p.flags(flags)
	}
	p.line(".SH COMMANDS")
	p.commands(root)
	p.line(".SH EXAMPLES")
	p.verbatim(root.Example)
	p.line(".SH SEE ALSO")
	p.text("https://github.com/weirlimit/weir/tree/main/docs")
	return p.String()
}

// page is a manual page that is being written.
type page struct{ strings.Builder }

// commands writes the commands below parent that --help lists, each followed by its own.
func (p *page) commands(parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		p.line(".SS", quoted(strings.TrimSuffix(c.UseLine(), " [flags]")))
		if c.Long != "" {
			p.prose(c.Long)
		} else {
			p.text(c.Short + ".")
		}
		flags, root := flagsOf(c), flagsOf(c.Root())
		own := slices.DeleteFunc(slices.Clone(flags), func(f string) bool { return slices.Contains(root, f) })
		if len(flags)-len(own) > 1 { // more than --help, which every command has
			p.line(".PP")
			p.text("It has the flags above.")
		}
		p.flags(own)
		if c.Example != "" {
			p.line(".PP")
			p.text("Examples:")
			p.verbatim(c.Example)
		}
		p.commands(c)
	}
}

// flagsOf returns what --help says of each flag of a command: the flag, three spaces or more, and
// its meaning with its default.
func flagsOf(cmd *cobra.Command) []string {
	var said []string
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" || f.Name == "version" {
			return
		}
		one := pflag.NewFlagSet("", pflag.ContinueOnError)
		one.AddFlag(f)
		said = append(said, strings.TrimSpace(one.FlagUsages()))
	})
	return said
}

func (p *page) flags(all []string) {
	for _, said := range all {
		flag, meaning, _ := strings.Cut(said, "   ")
		name, value, _ := strings.Cut(flag, " ")
		if short, long, both := strings.Cut(flag, ", "); both {
			name, value, _ = strings.Cut(long, " ")
			name = short + ", " + name
		}
		p.line(".TP")
		p.line(strings.TrimSpace(`\fB` + escaped(name) + `\fR \fI` + escaped(value) + `\fR`))
		p.text(strings.TrimSpace(meaning))
	}
}

// prose writes paragraphs. Lines that are indented stay as they are.
func (p *page) prose(text string) {
	for i, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			p.line(".PP")
		}
		if strings.HasPrefix(paragraph, " ") || strings.HasPrefix(paragraph, "\t") {
			p.verbatim(paragraph)
			continue
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			p.text(strings.TrimSpace(line))
		}
	}
}

// verbatim writes lines that are not filled.
func (p *page) verbatim(text string) {
	p.line(".nf")
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		p.text(strings.ReplaceAll(line, "\t", "    "))
	}
	p.line(".fi")
}

// text writes lines of text, in which nothing is a request of roff.
func (p *page) text(text string) {
	for line := range strings.SplitSeq(text, "\n") {
		p.line(escaped(line))
	}
}

func (p *page) line(words ...string) { p.WriteString(strings.Join(words, " ") + "\n") }

// escaped returns text that roff prints as it is.
func escaped(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		text = `\&` + text
	}
	return text
}

// quoted returns text as one argument of a request of roff.
func quoted(text string) string { return `"` + strings.ReplaceAll(escaped(text), `"`, `\(dq`) + `"` }
