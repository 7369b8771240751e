package rules

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/weirlimit/weir/limiter"
)

// SchemaID is the address of the JSON Schema of rules files.
const SchemaID = "https://raw.githubusercontent.com/weirlimit/weir/main/docs/rules.schema.json"

// form is a JSON Schema, or a part of one.
type form map[string]any

// Schema returns a JSON Schema (draft 2020-12) of rules files, for editors. The names of
// fields, the names that are known, and the bounds are those of the decoder. A file that
// it accepts may still be invalid, since it knows nothing of patterns, positions and
// relations between fields: [Parse] decides.
func Schema() []byte {
	d := &decoder{options: limitOptions()}
	file := d.object("file", d.fileFields(&fileNodes{}))
	file["$schema"], file["$id"], file["title"] = "https://json-schema.org/draft/2020-12/schema", SchemaID,
		"Weir rules file"
	file["required"] = []string{"rules"}
	rule := d.object("rule", d.ruleFields(&definition{}, &ruleNodes{}))
	rule["required"] = []string{"name"}
	quota := d.object("quota", quoting{d}.fields(&definition{}, &ruleNodes{}))
	quota["required"] = []string{"name", "limits"}
	draw := d.object("draw", quoting{d}.drawFields(&drawing{}, new(*node)))
	delete(draw["properties"].(form), "any")
	draw["required"] = []string{"name"}
	several := d.object("draw", alternating{d}.fields(&drawing{}, new(*node)))
	several["required"] = []string{"any"}
	alternative := d.object("draw", alternating{d}.itemFields(&drawing{}, new(*node)))
	alternative["required"] = []string{"name"}
	limit := d.object("limit", limiting{d}.limitFields(&spec{}, new([]setting)))
	limit["required"] = []string{"limit"}
	cost := costing{d}
	element := d.object("cost", slices.Concat(cost.amountFields(&amount{}, nil), cost.caseFields(&amount{}, nil),
		matching(cost).fields(&matcher{})))
	element["anyOf"] = []form{{"required": []string{"cost"}}, {"required": []string{"from"}}}
	stated := d.object("cost", cost.amountFields(&amount{}, nil))
	stated["required"] = []string{"from"}
	numbered := d.object("number", numbers{d}.fields(&numbering{}, &spec{}))
	numbered["required"] = []string{"else"}
	numbered["anyOf"] = []form{{"required": []string{"by", "of"}}, {"required": []string{"from", "most"}}}
	drip := d.object("drip", drips{d}.fields())
	drip["required"] = []string{"amount"}
	spelling := d.object("spelling", keying{d}.foldingFields(new(folding)))
	spelling["minProperties"] = 1
	deny := d.object("deny", d.denyFields(new(limiter.Denial)))
	deny["minProperties"] = 1
	file["$defs"] = form{
		"deny": deny,
		"rule": rule, "quota": quota, "draw": draw, "alternatives": several, "alternative": alternative, "limit": limit,
		"element": element, "stated": stated,
		"defaults":  d.object("rule", d.levelFields(&level{})),
		"match":     d.object("match", matching{d}.fields(&matcher{})),
		"attribute": d.object("attribute", matching{d}.attributeFields(&attribute{})),
		"zone":      d.object("zone", zones{d}.fields()),
		"drip":      drip,
		"numbers":   numbered,
		"spelling":  spelling,
		"not":       d.object("attribute", matching{d}.notFields(&attribute{})),
	}
	out, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return nil // of texts, numbers and lists only, so it cannot fail
	}
	return append(out, '\n')
}

// object returns the form of a mapping with these fields.
func (d *decoder) object(where string, fields []field) form {
	properties := form{}
	for _, f := range fields {
		properties[f.name] = d.formOf(where, f.name)
	}
	return form{"type": "object", "properties": properties, "additionalProperties": false}
}

func (d *decoder) formOf(where, name string) any {
	for _, forms := range []form{formsOf(where), limitForms(), matchForms()} {
		if f, ok := forms[name]; ok {
			return f
		}
	}
	return nil // a test fails
}

// formsOf returns the forms of fields that belong to one kind of mapping.
func formsOf(where string) form {
	switch where {
	case "file":
		return form{
			"version": form{"enum": []any{1, "1"}}, "rules_count": whole(0, maxRules), "defaults": ref("defaults"),
			"quotas": form{"type": "array", "maxItems": maxQuotas, "items": ref("quota")},
			"rules":  form{"type": "array", "maxItems": maxRules, "items": ref("rule")},
		}
	case "draw":
		return form{"name": name(), "cost": costForm(), "up_to": form{"type": "string", "pattern": "^[1-9][0-9]?%$"},
			"any": form{"type": "array", "minItems": 2, "maxItems": maxAlternatives, "items": anyOf(name(), ref("alternative"))}}
	case "rule", "quota":
		part := anyOf(form{"enum": partNames()}, form{"type": "string", "pattern": "^" + attributePrefix + ".+$",
			"maxLength": len(attributePrefix) + limiter.MaxNameBytes})
		part = anyOf(part, form{
			"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": false,
			"properties":        form{"path": ref("spelling"), "user": ref("spelling"), "group": ref("spelling")},
			"patternProperties": form{"^" + attributePrefix + ".+$": ref("spelling")},
		})
		key := someOf(part, maxKeyParts)
		return form{
			"name": name(), "match": ref("match"), "limits": someOf(ref("limit or rate"), limiter.MaxLimits),
			"unlimited": form{"type": "boolean"}, "deny": anyOf(form{"type": "boolean"}, ref("deny")),
			"continue": form{"type": "boolean"}, "shadow": form{"type": "boolean"},
			"key": key, "keys": form{"type": "array", "minItems": 1, "maxItems": maxKeys,
				"items": form{"type": "array", "minItems": 1, "maxItems": maxKeyParts, "items": part}},
			"id_ttl":    form{"type": "string", "pattern": "^" + durationForm + "$"},
			"hold":      form{"type": "string", "pattern": "^" + durationForm + "$"},
			"on_expiry": names[expiry](),
			"cost":      costForm(), "quotas": someOf(anyOf(name(), ref("draw"), ref("alternatives")), maxDraws),
			"on_unreachable": names[limiter.Unreachable](), "replication": names[limiter.Replication](),
			"leases":    names[leasing](),
			"max_share": form{"type": "string", "pattern": `^([0-9]+(\.[0-9])?|\.[0-9])%$`},
		}
	case "cost":
		return form{
			"cost": whole(0, limiter.MaxUnits), "min": whole(0, limiter.MaxUnits), "default": whole(1, limiter.MaxUnits),
			"max":  whole(1, limiter.MaxUnits),
			"from": form{"type": "string", "pattern": "^" + attributePrefix + ".+$"},
		}
	case "drip":
		return form{"amount": whole(1, limiter.MaxUnits),
			"every": form{"type": "string", "pattern": "^" + durationForm + "$"}}
	case "spelling":
		return form{"fold": form{"enum": []string{"case"}}, "trim": form{"type": "boolean"}}
	case "deny":
		return form{"status": form{"type": "integer", "minimum": 400, "maximum": 499},
			"reason": form{"type": []string{"string", "number", "boolean"}, "minLength": 1, "maxLength": maxReason}}
	case "number":
		by := anyOf(form{"enum": []string{"tenant", "user", "group"}},
			form{"type": "string", "pattern": "^" + attributePrefix + ".+$"})
		number := anyOf(whole(1, limiter.MaxUnits), rateForm())
		return form{
			"by": by, "from": form{"type": "string", "pattern": "^" + attributePrefix + ".+$"}, "most": number,
			"else": number,
			"of": anyOf(form{"type": "object", "minProperties": 1, "additionalProperties": number},
				form{"type": "object", "properties": form{"file": form{"type": "string", "minLength": 1}},
					"required": []string{"file"}, "additionalProperties": false}),
		}
	case "zone":
		return form{
			"from":    form{"type": "string", "pattern": "^" + attributePrefix + ".+$"},
			"default": form{"type": "string", "minLength": 1, "maxLength": limiter.MaxNameBytes},
		}
	case "attribute":
		return form{"pattern": pathForm(), "not": anyOf(someOf(scalar(), maxChoices), ref("not"))}
	}
	return nil
}

func costForm() form {
	return anyOf(whole(0, limiter.MaxUnits), ref("stated"),
		form{"type": "array", "minItems": 1, "maxItems": maxCosts, "items": ref("element")},
		form{"type": "object", "maxProperties": maxCosts,
			"propertyNames":        form{"pattern": "^(default|" + anyCase(knownMethods()) + ")$"},
			"additionalProperties": whole(0, limiter.MaxUnits)})
}

func limitForms() form {
	return form{
		"name": name(), "limit": anyOf(whole(1, limiter.MaxUnits), ref("numbers")),
		"window":    form{"type": "string", "pattern": "^" + durationForm + "$"},
		"algorithm": names[limiter.Algorithm](), "align": names[limiter.Align](), "coverage": names[limiter.Coverage](),
		"rounding": names[limiter.Rounding](), "drip": anyOf(names[limiter.Drip](), ref("drip")),
		"count_rejected": names[limiter.CountRejected](),
		"sub_windows":    whole(1, limiter.MaxSubWindows), "burst": whole(1, limiter.MaxUnits),
		"calendar": form{"enum": namesOf[limiter.Calendar]()[1:]}, "week_start": names[limiter.Weekday](),
		"anchor_day": whole(1, 31),
		"zone": anyOf(form{"type": "string", "minLength": 1, "maxLength": len(attributePrefix) + limiter.MaxNameBytes},
			ref("zone")), "at": form{"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"},
		"weight": anyOf(form{"type": "number", "minimum": 0, "maximum": 1},
			form{"type": "string", "pattern": `^0*[01]?(\.[0-9]{0,3})?$`}),
		"block": anyOf(form{"const": 0}, form{"type": "string", "pattern": "^(0|" + durationForm + ")$"}),
	}
}

// matchForms returns the forms of conditions.
func matchForms() form {
	method := form{"type": "string", "minLength": 1, "maxLength": limiter.MaxNameBytes, "pattern": `^[^ ,|*^$()\[\]{}]+$`}
	host := form{"type": "string", "minLength": 1, "maxLength": maxHostName + 1,
		"pattern": `^((\*\.)?[A-Za-z0-9_-][A-Za-z0-9._-]*|\[[0-9a-fA-F:.]+\])$`}
	ip := form{"type": "string", "pattern": "^[0-9a-fA-F:.]+(/[0-9]{1,3})?$"}
	return form{
		"path": pathForm(), "not_path": pathForm(),
		"method": someOf(method, maxChoices), "not_method": someOf(method, maxChoices),
		"group": someOf(scalar(), maxChoices), "not_group": someOf(scalar(), maxChoices),
		"ip": someOf(ip, maxPrefixes), "not_ip": someOf(ip, maxPrefixes),
		"host": someOf(host, maxChoices), "not_host": someOf(host, maxChoices),
		"user": anyOf(someOf(scalar(), maxChoices), ref("not")), "not_user": anyOf(someOf(scalar(), maxChoices), ref("not")),
		"attributes": form{
			"type": "object", "maxProperties": maxAttributes,
			"additionalProperties": anyOf(form{"type": "null"}, someOf(scalar(), maxChoices), ref("attribute")),
		},
	}
}

const durationForm = `(second|minute|` +
	`hour|day|week|month|year|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d|w))+)`

func ref(name string) form {
	if name == "limit or rate" {
		return anyOf(ref("limit"), rateForm())
	}
	return form{"$ref": "#/$defs/" + name}
}

// rateForm is the form of a limit in its short form.
func rateForm() form {
	return form{"type": "string", "pattern": `^\s*[0-9]+(_[0-9]+)*\s*/\s*` + durationForm + `\s*$`}
}

func anyOf(forms ...form) form { return form{"anyOf": forms} }

// someOf is the form of a value or a list of at most so many.
func someOf(item form, most int) form {
	return anyOf(item, form{"type": "array", "minItems": 1, "maxItems": most, "items": item})
}

// scalar is the form of a text, which may look like another value.
func scalar() form { return form{"type": []string{"string", "number", "boolean"}} }

func name() form {
	return form{"type": []string{"string", "number", "boolean"}, "minLength": 1, "maxLength": limiter.MaxNameBytes}
}

func pathForm() form {
	return form{"type": []string{"string", "number", "boolean"}, "maxLength": maxPattern}
}

// whole is the form of a whole number, which may have underscores.
func whole(least, most int64) form {
	return anyOf(form{"type": "integer", "minimum": least, "maximum": most},
		form{"type": "string", "pattern": "^[0-9]+(_[0-9]+)*$"})
}

func names[T interface {
	~uint8
	String() string
}]() form {
	return form{"enum": namesOf[T]()}
}

// anyCase returns words as alternatives in any mixture of upper and lower case. Patterns of
// a schema have no flag for that.
func anyCase(words []string) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteByte('|')
		}
		for _, c := range []byte(w) {
			if lower := strings.ToLower(string(c)); lower != string(c) {
				b.WriteString("[" + string(c) + lower + "]")
			} else {
				b.WriteByte(c)
			}
		}
	}
	return b.String()
}
