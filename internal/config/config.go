// Package config knows the settings of git checkpoint: what they are called,
// what they default to, and where they come from.
package config

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Config is the settings that hold for a repository. What each is for is told
// by its entry in Keys.
type Config struct {
	AutoCheckpoint bool
	CommitName     string
	CommitEmail    string
	CommitMessage  string // empty: our own
	MaxFileSize    int64  // bytes; 0: no limit
	Exclude        []string
	BranchPrefix   string
	WorktreeDir    string
	PushAuto       bool           // pre-push shares the runs whose commits are pushed
	PushRemote     string         // where checkpoints go; empty: where the branch goes
	PushSecrets    string         // block, warn or off
	RequirePushed  bool           // prune drops only what a remote has
	Rollover       int64          // checkpoints after which a session goes on in a new run; 0: never
	Policy         []PolicyMember // of .checkpoint.toml only
}

// DefaultMaxFileSize is 50 MiB.
const DefaultMaxFileSize = 50 << 20

// Read reads the settings, each layer over the one before: the defaults,
// .checkpoint.toml, git config checkpoint.*, the variables GIT_CHECKPOINT_*.
// What cannot be read is left out and told; each fault is fault.Invalid.
func Read(repo *git.Repo) (*Config, []error) {
	l := &layers{repo: repo, config: defaults(repo)}
	l.all()
	return l.config, l.faults
}

// layers is one reading of all settings.
type layers struct {
	repo   *git.Repo
	config *Config
	faults []error
	// origin is told of each value that is set, if it is not nil.
	origin func(k *Key, where string)
	// places are where git's settings stand, by the key as git lists it; nil
	// where nobody asks.
	places map[string]string
	// bounds are what .checkpoint.toml says of keys that it may only tighten.
	bounds []bound
}

type bound struct {
	key   *Key
	value string
	where string
}

func (l *layers) all() {
	l.file()
	for i := range Keys {
		k := &Keys[i]
		if texts := l.repo.Config[listed(k.Name)]; len(texts) > 0 {
			set, err := k.setText(l.config, texts)
			l.note(k, set, err, "git config "+GitKey(k.Name), l.places[listed(k.Name)])
		}
		if text := os.Getenv(Variable(k.Name)); text != "" {
			texts := []string{text}
			if _, list := k.to(l.config).(*[]string); list {
				texts = append([]string{""}, strings.Fields(text)...)
			}
			set, err := k.setText(l.config, texts)
			l.note(k, set, err, "the variable "+Variable(k.Name), "environment "+Variable(k.Name))
		}
	}
	for _, b := range l.bounds {
		have := *b.key.to(l.config).(*string)
		if slices.Index(b.key.Strictest, b.value) < slices.Index(b.key.Strictest, have) {
			set, err := b.key.setText(l.config, []string{b.value})
			l.note(b.key, set, err, FileName, b.where)
		}
	}
}

// note takes down how a value was read.
func (l *layers) note(k *Key, set bool, err error, name, where string) {
	switch {
	case err != nil:
		l.faults = append(l.faults, fault.New(fault.Invalid, "invalid-config", "read %s: %w", name, err).
			WithHint("git checkpoint config -h lists the settings"))
	case set && l.origin != nil:
		l.origin(k, where)
	}
}

// Setting is a key with its value and where that came from.
type Setting struct {
	Key     string `json:"key"`
	Value   any    `json:"value"`  // bool, string, int64 or []string
	Origin  string `json:"origin"` // "default", ".checkpoint.toml:<line>", "git config <scope> <file>", "environment <variable>"
	Default any    `json:"default"`
}

// List returns every setting. The faults are those of Read.
func List(ctx context.Context, repo *git.Repo) ([]Setting, []error) {
	places, err := gitPlaces(ctx, repo)
	if err != nil {
		return nil, []error{err}
	}
	origins := map[string]string{}
	l := &layers{repo: repo, config: defaults(repo), places: places}
	l.origin = func(k *Key, where string) { origins[k.Name] = where }
	l.all()
	plain := defaults(repo)
	list := make([]Setting, len(Keys))
	for i := range Keys {
		k := &Keys[i]
		list[i] = Setting{Key: k.Name, Value: k.value(l.config), Default: k.value(plain), Origin: "default"}
		if where, ok := origins[k.Name]; ok {
			list[i].Origin = where
		}
	}
	return list, l.faults
}

func (k *Key) value(c *Config) any {
	switch v := k.to(c).(type) {
	case *bool:
		return *v
	case *int64:
		return *v
	case *[]string:
		return append([]string{}, *v...)
	case *string:
		return *v
	}
	return nil
}

// gitPlaces asks git where each of our settings stands; of several the last,
// which counts.
func gitPlaces(ctx context.Context, repo *git.Repo) (map[string]string, error) {
	c := repo.Command(ctx, "config", "--list", "-z", "--show-scope", "--show-origin")
	fields, err := c.Lines()
	if err != nil {
		return nil, fault.New(fault.Fatal, "git-config", "ask git where settings stand: %w", err)
	}
	places := map[string]string{}
	for ; len(fields) >= 3; fields = fields[3:] {
		scope, file := fields[0], fields[1]
		key, _, _ := strings.Cut(fields[2], "\n")
		if !strings.HasPrefix(key, "checkpoint.") {
			continue
		}
		if file = strings.TrimPrefix(file, "file:"); scope == "command" {
			file = "line"
		}
		places[key] = "git config " + scope + " " + file
	}
	return places, nil
}

// Unknown returns the keys under checkpoint. in git's configuration that are
// no settings, as git lists them. git ignores what it does not know, and a
// newer version may know more, so they are no faults.
func Unknown(repo *git.Repo) []string {
	known := map[string]bool{}
	for _, k := range Keys {
		known[listed(k.Name)] = true
	}
	var unknown []string
	for key := range repo.Config {
		if strings.HasPrefix(key, "checkpoint.") && !known[key] {
			unknown = append(unknown, key)
		}
	}
	return unknown
}

// Nearest returns the key of git config that somebody may have meant by one
// that is no setting, "" if none is near.
func Nearest(unknown string) string {
	last := func(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }
	var keys []string
	for _, k := range Keys {
		key := GitKey(k.Name)
		if strings.EqualFold(last(key), last(unknown)) {
			return key
		}
		keys = append(keys, key)
	}
	return refs.Nearest(unknown, keys)
}

func first(repo *git.Repo, def string, key string) string {
	if v, ok := repo.Config.Get(key); ok && strings.TrimSpace(v) != "" {
		return v
	}
	return def
}

// Identity is who signs checkpoints, as of now.
func (c *Config) Identity() (refs.Identity, error) {
	now, err := Now()
	return refs.Identity{Name: c.CommitName, Email: c.CommitEmail, When: now}, err
}

// Now is the time for what is recorded: the clock's, or that of
// GIT_CHECKPOINT_DATE ("<seconds since 1970> <zone>" or RFC 3339), which
// fixes it in tests.
func Now() (time.Time, error) {
	v := os.Getenv("GIT_CHECKPOINT_DATE")
	if v == "" {
		return time.Now(), nil
	}
	if t, err := time.Parse(time.RFC3339, v); err == nil {
		return t, nil
	}
	seconds, zone, _ := strings.Cut(strings.TrimPrefix(v, "@"), " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return time.Time{}, fault.New(fault.Invalid, "invalid-date", "read GIT_CHECKPOINT_DATE: '%s' is no date", v).
			WithHint("write RFC 3339, or seconds since 1970 and a zone such as +0100")
	}
	t := time.Unix(n, 0).UTC()
	if z, err := time.Parse("-0700", zone); err == nil {
		t = t.In(z.Location())
	}
	return t, nil
}
