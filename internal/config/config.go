// Package config knows the settings of git checkpoint: what they are called,
// what they default to, and where they come from.
package config

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

// Config is the settings that hold for a repository.
type Config struct {
	CommitName    string
	CommitEmail   string
	CommitMessage string   // template of the subject; empty: our own
	MaxFileSize   int64    // bytes; untracked files above it are skipped; 0: no limit
	Exclude       []string // gitignore patterns of untracked files to leave out
	BranchPrefix  string   // of branches that rewind and switch make
	// AutoCheckpoint is whether hooks and reactors do anything.
	AutoCheckpoint bool
}

// DefaultMaxFileSize is 50 MiB.
const DefaultMaxFileSize = 50 << 20

// Load reads the settings: git config checkpoint.*, and over it the
// variables GIT_CHECKPOINT_*. A value that cannot be is fault.Invalid.
func Load(repo *git.Repo) (*Config, error) {
	c := &Config{
		CommitName:   first(repo, "git-checkpoint", "user.name"),
		CommitEmail:  first(repo, "git-checkpoint@localhost", "user.email"),
		MaxFileSize:  DefaultMaxFileSize,
		BranchPrefix: "checkpoint/",

		AutoCheckpoint: true,
	}
	if v, ok := lookup(repo, "auto_checkpoint"); ok {
		b, err := git.ParseBool(v)
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid-config", "read setting '%s': '%s' is no boolean", GitKey("auto_checkpoint"), v)
		}
		c.AutoCheckpoint = b
	}
	text := func(name string, to *string) {
		if v, ok := lookup(repo, name); ok && v != "" {
			*to = v
		}
	}
	text("commit.name", &c.CommitName)
	text("commit.email", &c.CommitEmail)
	text("commit.message", &c.CommitMessage)
	text("branch_prefix", &c.BranchPrefix)
	if v, ok := lookup(repo, "snapshot.max_file_size"); ok {
		n, err := parseSize(v)
		if err != nil {
			return nil, fault.New(fault.Invalid, "invalid-config", "read setting '%s': %w", GitKey("snapshot.max_file_size"), err)
		}
		c.MaxFileSize = n
	}
	if v, ok := os.LookupEnv(variable("snapshot.exclude")); ok {
		c.Exclude = strings.Fields(v)
	} else {
		c.Exclude = repo.Config[strings.ToLower(GitKey("snapshot.exclude"))]
	}
	return c, nil
}

func first(repo *git.Repo, def string, key string) string {
	if v, ok := repo.Config.Get(key); ok && strings.TrimSpace(v) != "" {
		return v
	}
	return def
}

// GitKey is how a setting is called in git config: snapshot.max_file_size is
// checkpoint.snapshot.maxFileSize.
func GitKey(name string) string {
	parts := strings.Split(name, "_")
	for i := 1; i < len(parts); i++ {
		if parts[i] != "" {
			parts[i] = strings.ToUpper(parts[i][:1]) + parts[i][1:]
		}
	}
	return "checkpoint." + strings.Join(parts, "")
}

func variable(name string) string {
	return "GIT_CHECKPOINT_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

func lookup(repo *git.Repo, name string) (string, bool) {
	if v, ok := os.LookupEnv(variable(name)); ok {
		return v, true
	}
	key := GitKey(name)
	// git folds the case of a section's and a variable's name, not of what is between.
	section, rest, _ := strings.Cut(key, ".")
	if i := strings.LastIndexByte(rest, '.'); i >= 0 {
		return repo.Config.Get(section + "." + rest[:i] + strings.ToLower(rest[i:]))
	}
	return repo.Config.Get(section + "." + strings.ToLower(rest))
}

// parseSize reads a size as git does: bytes, or with k, m or g.
func parseSize(v string) (int64, error) {
	number, unit := strings.TrimSpace(v), int64(1)
	if number != "" {
		switch number[len(number)-1] {
		case 'k', 'K':
			unit = 1 << 10
		case 'm', 'M':
			unit = 1 << 20
		case 'g', 'G':
			unit = 1 << 30
		}
	}
	if unit > 1 {
		number = number[:len(number)-1]
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/unit {
		return 0, fmt.Errorf("'%s' is no size; write bytes, or a number with k, m or g", v)
	}
	return n * unit, nil
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
