package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirlimit/weir/internal/yamltree"
)

// maxNumbersFile bounds the size of a file of numbers, and maxExpanded that of a rules file with
// all its files of numbers in it.
const (
	maxNumbersFile = 2 << 20
	maxExpanded    = 3 << 20
)

// numbersField begins the text of a file of numbers in a rules file that [Expand] returned.
const numbersField = `, numbers: "`

// Expand returns a rules file in which the files of numbers that it names, as in "of: {file:
// plans.yaml}", are written out, so that [Parse] needs nothing else. read returns the contents of
// a file; its name is relative to the directory of the rules file, in which it is, or below. A file is
// read once, however often it is named. Data without such names is returned as it is, also
// if it is not a valid rules file: Parse says why.
//
// A file of numbers has a line for each name, such as "free: 100/minute", and comments that begin
// with #. Each line is valid YAML. If anything is wrong in one, Expand returns an [*Error] with all
// problems of the first such file, under its name.
func Expand(data []byte, read func(name string) ([]byte, error)) ([]byte, error) {
	if !bytes.Contains(data, []byte("file")) {
		return data, nil
	}
	var ignored problems
	root := readTree(data, &ignored)
	if root == nil {
		return data, nil
	}
	var at []*node
	files(root, &at)
	if len(at) == 0 {
		return data, nil
	}
	text := map[string]string{}
	for _, n := range at {
		if _, ok := text[n.Text]; ok {
			continue
		}
		name := path.Clean(n.Text)
		if path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") || strings.ContainsRune(name, '\\') {
			return nil, fmt.Errorf("line %d of the rules file: file of numbers %s is not in the directory of the rules file: "+
				"put it there, and write only its name", n.Line, quote(n.Text))
		}
		contents, err := read(name)
		if err != nil {
			return nil, fmt.Errorf("line %d of the rules file: %w", n.Line, err)
		}
		if text[n.Text], err = numbersIn(n.Text, contents); err != nil {
			return nil, err
		}
	}
	// The same line breaks as the positions count.
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	lines := strings.Split(string(data), "\n")
	size := len(data)
	for _, n := range slices.Backward(at) { // of one line, the last first
		begin, end, ok := place(lines[n.Line-1], n)
		if !ok {
			return nil, fmt.Errorf("line %d of the rules file: the name of the file of numbers %s cannot be found in its line: "+
				"write it in one line, without escapes", n.Line, quote(n.Text))
		}
		line := lines[n.Line-1]
		lines[n.Line-1] = line[:begin] + "{name: " + jsonText(n.Text) + numbersField[:len(numbersField)-1] +
			jsonText(text[n.Text]) + "}" + line[end:]
		if size += len(lines[n.Line-1]) - len(line); size > maxExpanded {
			return nil, fmt.Errorf("the rules file has %d bytes with its files of numbers; at most %d are allowed", size,
				maxExpanded)
		}
	}
	return []byte(strings.Join(lines, "\n")), nil
}

// files appends the names of files of numbers below a node.
func files(n *node, out *[]*node) {
	for i, v := range n.Items {
		if n.Kind == yamltree.Mapping && n.Keys[i].Text == "of" && v.Kind == yamltree.Mapping && len(v.Keys) == 1 &&
			v.Keys[0].Text == "file" && v.Items[0].Kind == yamltree.Scalar && !isNumber(v.Items[0].Text) {
			*out = append(*out, v.Items[0])
			continue
		}
		files(v, out)
	}
}

// place returns where in its line a scalar is written.
func place(line string, n *node) (begin, end int, ok bool) {
	for range n.Column - 1 {
		_, size := utf8.DecodeRuneInString(line[begin:])
		begin += size
	}
	for _, quotes := range []string{"", `"`, "'"} {
		if whole := quotes + n.Text + quotes; strings.HasPrefix(line[begin:], whole) {
			return begin, begin + len(whole), true
		}
	}
	return 0, 0, false
}

// jsonText returns a text in the double quotes of JSON, which YAML reads alike.
func jsonText(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return `""` // not reached: texts can be written
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// numbersIn returns the entries of a file of numbers: of each a line with the number, a blank and
// the name.
func numbersIn(file string, data []byte) (string, error) {
	var p problems
	if len(data) > maxNumbersFile {
		p.addAt(1, 1, "the file has %d bytes; at most %d are allowed", len(data), maxNumbersFile)
		return "", p.err(file)
	}
	var out strings.Builder
	first := map[string]int{}
	if data, ok := yamltree.Text(data, "a rules file", p.addAt); ok {
		for i, line := range strings.Split(string(data), "\n") {
			name, number, ok, bad := numbersLine(line)
			if !ok && bad == "" {
				continue
			}
			if bad == "" {
				_, _, bad = numberOf(number)
			}
			if before := first[name]; bad == "" && before > 0 {
				bad = fmt.Sprintf("%s is given twice; the first is on line %d", quote(name), before)
			}
			if bad != "" {
				p.addAt(i+1, 1+len(line)-len(strings.TrimLeft(line, " \t")), "%s", bad)
				continue
			}
			first[name] = i + 1
			out.WriteString(strings.ReplaceAll(number, " ", "") + " " + name + "\n")
		}
		if len(first) == 0 && len(p.list) == 0 {
			p.addAt(1, 1, "the file has no numbers: write a line for each name, such as free: 100/minute")
		}
	}
	return out.String(), p.err(file)
}

// numbersLine returns the name and the number of one line; ok is false for a line without them.
func numbersLine(line string) (name, number string, ok bool, bad string) {
	const form = "write a name, a colon, a blank and a number, as in free: 100/minute"
	text := strings.TrimFunc(line, unicode.IsSpace)
	if text == "" || text[0] == '#' || text == "---" {
		return "", "", false, ""
	}
	if mark := text[0]; mark == '"' || mark == '\'' {
		end := strings.IndexByte(text[1:], mark)
		if end < 0 || strings.IndexByte(text[1:1+end], '\\') >= 0 {
			return "", "", false, "a name in quotes ends in its line and has no escapes: " + form
		}
		name, number = text[1:1+end], strings.TrimLeft(text[2+end:], " \t")
		if number, ok = strings.CutPrefix(number, ":"); !ok {
			return "", "", false, quote(text) + " is not a number of a name: " + form
		}
	} else if name, number, ok = strings.Cut(text, ": "); !ok {
		return "", "", false, quote(text) + " is not a number of a name: " + form
	}
	if number, _, _ = strings.Cut(number, " #"); name != strings.TrimSpace(name) || name == "" {
		return "", "", false, quote(name) + " is not a name: it is empty, or has blanks around it"
	}
	if len(name) > maxNumberedName {
		return "", "", false, fmt.Sprintf("the name has %d bytes; at most %d are allowed", len(name), maxNumberedName)
	}
	return name, strings.TrimSpace(number), true, ""
}

// numbersFile decodes a file of numbers that [Expand] has written out.
func (d numbers) numbersFile(f *node, n *numbering) {
	if f.Kind != yamltree.Mapping || f.At("numbers") == nil {
		name := f.Text
		if f.Kind != yamltree.Scalar {
			name = "plans.yaml"
		}
		d.add(f, "the numbers of %s are in another file, which is not read here: give the rules file to the node or to weir "+
			"by its name, or call rules.Expand before rules.Parse", quote(name))
		return
	}
	text := f.At("numbers")
	name := f.At("name")
	if len(f.Keys) != 2 || name == nil || name.Kind != yamltree.Scalar || text.Kind != yamltree.Scalar {
		d.add(f, "a file of numbers is written as of: {file: plans.yaml}")
		return
	}
	n.file = name.Text
	n.of = slices.Grow(n.of, strings.Count(text.Text, "\n"))
	for line := range strings.Lines(text.Text) {
		number, name, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			d.add(text, "%s in %s is not a number and a name", quote(line), quote(n.file))
			return
		}
		before := len(d.problems.list)
		if d.entry(n, name, text, number); len(d.problems.list) > before {
			return // others would be alike
		}
	}
}
