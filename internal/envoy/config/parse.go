package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v2"
)

// File is a configuration file: its name, for errors, and its contents.
type File struct {
	Name string
	Data []byte
}

// Options says how files are read.
type Options struct {
	// MergeDomains lets several files describe one domain.
	MergeDomains bool
}

// Bounds of a configuration. An alias of YAML may stand for much more than its file has, and
// each descriptor repeats the names of all levels above it.
const (
	maxDepth       = 64
	maxDescriptors = 100_000
	maxNames       = 64 << 20 // estimated bytes of the paths and of the names of levels
	levelSize      = 40       // bytes of one level's name in a limit, without its text
)

// Parse reads files, in the order of their names, into a configuration. The error begins
// with the name of the file that is wrong. Then no file is in force: a configuration is
// whole or not there.
func Parse(files []File, o Options) (*Config, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	p := &parser{options: o, config: &Config{domains: make(map[string]*level)}}
	for _, f := range files {
		if err := p.file(f.Data); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	return p.config, nil
}

// The file's form. The decoder ignores fields at levels where they have no meaning.
type (
	fileRoot struct {
		Domain      string
		Descriptors []fileDescriptor
	}
	fileDescriptor struct {
		Key            string
		Value          string
		RateLimit      *fileLimit `yaml:"rate_limit"`
		Descriptors    []fileDescriptor
		ShadowMode     bool `yaml:"shadow_mode"`
		QuotaMode      bool `yaml:"quota_mode"`
		DetailedMetric bool `yaml:"detailed_metric"`
		ValueToMetric  bool `yaml:"value_to_metric"`
		ShareThreshold bool `yaml:"share_threshold"`
		Metadata       map[string]any
	}
	fileLimit struct {
		Unit            string
		RequestsPerUnit uint32 `yaml:"requests_per_unit"`
		Unlimited       bool
		Name            string
		Replaces        []struct{ Name string }
	}
)

// known reports whether a key is one of the format's, at whatever level.
func known(key string) bool {
	switch key {
	case "domain", "key", "value", "descriptors", "rate_limit", "unit", "requests_per_unit", "unlimited", "shadow_mode",
		"quota_mode",
		"name", "replaces", "detailed_metric", "value_to_metric", "share_threshold", "metadata":
		return true
	}
	return false
}

type parser struct {
	options Options
	config  *Config
	domain  string // of the file being read
	count   int    // descriptors so far
	names   int    // of them, in bytes: see maxNames
}

func (p *parser) file(data []byte) error {
	var any map[any]any
	if err := decode(data, &any); err != nil {
		return err
	}
	if err := checkKeys(any, 0); err != nil {
		return err
	}
	var root fileRoot
	if err := decode(data, &root); err != nil {
		return err
	}
	return p.root(&root)
}

// root adds what a file or a message says.
func (p *parser) root(root *fileRoot) error {
	if root.Domain == "" {
		return errors.New("config file cannot have empty domain")
	}
	p.domain = root.Domain
	top := p.config.domains[root.Domain]
	if top != nil && !p.options.MergeDomains {
		return fmt.Errorf("duplicate domain '%s' in config file", root.Domain)
	}
	if top == nil {
		top = new(level)
		p.config.domains[root.Domain] = top
	}
	return p.descriptors(top, root.Descriptors, root.Domain, nil)
}

func decode(data []byte, into any) error {
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("error loading config file: %w", err)
	}
	return nil
}

// checkKeys returns an error for a key or a value that no file of this format has.
func checkKeys(m map[any]any, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("the file is nested more than %d levels deep: flatten it", maxDepth)
	}
	names := make([]string, 0, len(m))
	for k := range m {
		name, ok := k.(string)
		if !ok {
			return fmt.Errorf("config error, key is not of type string: %v", k)
		}
		names = append(names, name)
	}
	slices.Sort(names) // so that the same file always gives the same error
	for _, name := range names {
		if !known(name) {
			return fmt.Errorf("config error, unknown key '%s'", name)
		}
		if name == "metadata" {
			continue // anything may be there
		}
		if err := checkValue(m[name], depth); err != nil {
			return err
		}
	}
	return nil
}

func checkValue(v any, depth int) error {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			m, ok := e.(map[any]any)
			if !ok {
				return fmt.Errorf("config error, yaml file contains list of type other than map: %v", e)
			}
			if err := checkKeys(m, depth+1); err != nil {
				return err
			}
		}
	case map[any]any:
		return checkKeys(v, depth+1)
	case string, int, bool, nil:
	default:
		return errors.New("error checking config")
	}
	return nil
}

// descriptors adds descriptors to a level. path is the text of the levels above, and names
// are their names in statistics.
func (p *parser) descriptors(to *level, ds []fileDescriptor, path string, names []levelName) error {
	if len(names) > maxDepth {
		return fmt.Errorf("descriptors are nested more than %d levels deep: flatten them", maxDepth)
	}
	for i := range ds {
		d := &ds[i]
		if p.count++; p.count > maxDescriptors {
			return fmt.Errorf("there are more than %d descriptors: use fewer", maxDescriptors)
		}
		if d.Key == "" {
			return errors.New("descriptor has empty key")
		}
		text := d.Key
		if d.Value != "" {
			text += "_" + d.Value
		}
		p.names += len(path) + 1 + len(text) + levelSize*(len(names)+1)
		if p.names > maxNames {
			return fmt.Errorf("the names of descriptors and of those above them take more than %d MiB: shorten or flatten them",
				maxNames>>20)
		}
		own := path + "." + text
		if to.exact[text] != nil {
			return fmt.Errorf("duplicate descriptor composite key '%s'", own)
		}
		n := &node{text: text, shared: d.ShareThreshold}
		var err error
		if n.limit, err = limitOf(d, own); err != nil {
			return err
		}
		if d.ShareThreshold && !strings.Contains(text, "*") {
			return fmt.Errorf("share_threshold can only be used with wildcard values (containing '*'), but found key '%s'", text)
		}
		all := append(slices.Clip(names), levelName{text, d.ValueToMetric, d.ShareThreshold})
		if n.limit != nil {
			n.limit.names, n.limit.detailed = all, d.DetailedMetric
			if !d.DetailedMetric && !slices.ContainsFunc(all, func(n levelName) bool { return n.value }) {
				n.limit.labels = n.limit.Labels(p.domain, nil)
			}
		}
		if err := p.descriptors(&n.below, d.Descriptors, own, all); err != nil {
			return err
		}
		to.add(n)
	}
	return nil
}

// limitOf returns the limit of a descriptor, nil if it has none.
func limitOf(d *fileDescriptor, path string) (*Limit, error) {
	l := d.RateLimit
	if l == nil {
		if _, given := d.Metadata[ownKey]; given {
			return nil, errors.New("error parsing metadata: " + ownKey + " has no effect: the descriptor has no rate_limit")
		}
		return nil, nil
	}
	unit, valid := unitOf(l.Unit)
	switch {
	case l.Unlimited && valid:
		return nil, errors.New("should not specify rate limit unit when unlimited")
	case !l.Unlimited && !valid:
		return nil, fmt.Errorf("invalid rate limit unit '%s'", l.Unit)
	}
	out := &Limit{
		Path: path, Name: l.Name, Unit: unit, Requests: l.RequestsPerUnit, Unlimited: l.Unlimited,
		Shadow: d.ShadowMode, Quota: d.QuotaMode,
	}
	for _, r := range l.Replaces {
		if r.Name == "" {
			return nil, errors.New("should not have an empty replaces entry")
		}
		if r.Name == l.Name {
			return nil, errors.New("replaces should not contain name of same descriptor")
		}
		out.Replaces = append(out.Replaces, r.Name)
	}
	if d.Metadata != nil {
		m, err := jsonValue(d.Metadata, 0)
		if err != nil {
			return nil, fmt.Errorf("error parsing metadata: %w", err)
		}
		out.Metadata, _ = m.(map[string]any)
		if err := out.form(); err != nil {
			return nil, fmt.Errorf("error parsing metadata: %w", err)
		}
	}
	return out, nil
}

// jsonValue converts a value of YAML to one of JSON: maps with text as keys.
func jsonValue(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested more than %d levels deep", maxDepth)
	}
	switch v := v.(type) {
	case nil, bool, string, float64:
		return v, nil
	case int:
		return float64(v), nil
	case int64:
		return float64(v), nil
	case uint64:
		return float64(v), nil
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			var err error
			if out[i], err = jsonValue(e, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		return jsonMap(v, func(k string) (string, error) { return k, nil }, depth)
	case map[any]any:
		return jsonMap(v, func(k any) (string, error) {
			if s, ok := k.(string); ok {
				return s, nil
			}
			return "", fmt.Errorf("the key %v is not text", k)
		}, depth)
	}
	return nil, fmt.Errorf("the value %v has no form in JSON", v)
}

func jsonMap[K comparable](m map[K]any, name func(K) (string, error), depth int) (any, error) {
	out := make(map[string]any, len(m))
	for k, e := range m {
		s, err := name(k)
		if err != nil {
			return nil, err
		}
		if out[s], err = jsonValue(e, depth+1); err != nil {
			return nil, err
		}
	}
	return out, nil
}
