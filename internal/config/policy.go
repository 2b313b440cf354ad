package config

import (
	"fmt"
	"slices"

	"github.com/git-checkpoint/git-checkpoint/internal/tomlpos"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// PolicyMember says who may work in reruns: [[policy.member]] of
// .checkpoint.toml. Where no member is listed, all may.
type PolicyMember struct {
	ID       string
	Provider string   // empty: any
	Models   []string // empty: any
	Retired  bool
}

// policyKeys are what a member may have.
var policyKeys = []string{"id", "provider", "models", "retired"}

// policy reads the tables [[policy.member]], as strictly as everything else.
func (l *layers) policy(value any, definitions []tomlpos.Definition) {
	at := tomlpos.Definition{Line: 1, Column: 1}
	for _, d := range definitions {
		if d.Path[0] == "policy" {
			at = d
			break
		}
	}
	fault := func(format string, args ...any) { l.fileFault(at.Line, at.Column, fmt.Sprintf(format, args...), "") }
	table, ok := value.(map[string]any)
	if !ok {
		fault("'policy' must be a table, and is %s", typeName(value))
		return
	}
	for key := range table {
		if key != "member" {
			fault("unknown key 'policy.%s'", key)
		}
	}
	var members []map[string]any
	switch list := table["member"].(type) {
	case nil:
	case []map[string]any:
		members = list
	default:
		fault("'policy.member' must be an array of tables, and is %s", typeName(list))
	}
	for i, m := range members {
		l.policyMember(m, fmt.Sprintf("policy.member number %d", i+1), fault)
	}
}

func (l *layers) policyMember(m map[string]any, name string, fault func(string, ...any)) {
	var member PolicyMember
	for key, value := range m {
		ok := false
		switch key {
		case "id":
			member.ID, ok = value.(string)
		case "provider":
			member.Provider, ok = value.(string)
		case "retired":
			member.Retired, ok = value.(bool)
		case "models":
			member.Models, ok = texts(value)
		default:
			hint := ""
			if near := refs.Nearest(key, policyKeys); near != "" {
				hint = fmt.Sprintf("; did you mean '%s'?", near)
			}
			fault("%s: unknown key '%s'%s", name, key, hint)
			continue
		}
		if !ok {
			fault("%s: '%s' is of another type: %s", name, key, typeName(value))
		}
	}
	if member.ID == "" {
		fault("%s has no 'id'", name)
		return
	}
	if slices.ContainsFunc(l.config.Policy, func(p PolicyMember) bool { return p.ID == member.ID }) {
		fault("%s: '%s' is there twice", name, member.ID)
	}
	l.config.Policy = append(l.config.Policy, member)
}

func texts(value any) ([]string, bool) {
	list, ok := value.([]any)
	if !ok {
		return nil, false
	}
	var result []string
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			return nil, false
		}
		result = append(result, s)
	}
	return result, true
}

// MayWork says why a member of a plan may not work by the policy, "" if it may.
func (c *Config) MayWork(id, provider, model string) string {
	if len(c.Policy) == 0 {
		return ""
	}
	i := slices.IndexFunc(c.Policy, func(p PolicyMember) bool { return p.ID == id })
	if i < 0 {
		return "the policy does not list it"
	}
	p := c.Policy[i]
	switch {
	case p.Retired:
		return "it is retired"
	case p.Provider != "" && p.Provider != provider:
		return fmt.Sprintf("its provider '%s' is not the one of the policy, '%s'", provider, p.Provider)
	case len(p.Models) > 0 && !slices.Contains(p.Models, model):
		return fmt.Sprintf("its model '%s' is not among those of the policy", model)
	}
	return ""
}
