package main

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/git-checkpoint/git-checkpoint/internal/config"
	"github.com/git-checkpoint/git-checkpoint/internal/fault"
	"github.com/git-checkpoint/git-checkpoint/internal/git"
	"github.com/git-checkpoint/git-checkpoint/internal/output"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

func configCommand() *command {
	var keys strings.Builder
	for _, k := range config.Keys {
		fmt.Fprintf(&keys, "\n\n%s: %s.", k.Name, k.Help)
	}
	return &command{
		name:     "config",
		summary:  "list the settings, their values and where they come from",
		synopsis: []string{"[KEY] [--json]"},
		description: `Lists every setting with its value and where that comes from; with KEY only that one.

A setting is looked for in .checkpoint.toml at the top of the working tree, in git config under checkpoint., and in the environment; what comes later in this order wins, a flag of a command wins over all. Two words are joined by a line below in the file, by a capital in git config, and all are capitals in the environment: snapshot.max_file_size is checkpoint.snapshot.maxFileSize and GIT_CHECKPOINT_SNAPSHOT_MAX_FILE_SIZE. An empty variable counts as not set.

.checkpoint.toml may come with a clone. Nothing in it makes anything run, or sends anything. What it says wrongly is an error; git checkpoint status, undo and restore --continue only warn of it.

The settings are:` + keys.String(),
		args: []string{"[KEY]"},
		examples: []example{
			{"git checkpoint config", "see what holds here, and why"},
			{"git checkpoint config snapshot.max_file_size --json", "read one setting in a script"},
		},
		run: runConfig,
	}
}

func runConfig(c *call) error {
	repo, err := git.Open(c.ctx, "")
	if err != nil {
		return err
	}
	list, faults := config.List(c.ctx, repo)
	if len(faults) > 0 {
		return faults[0]
	}
	if key := c.arg(0); key != "" {
		i := slices.IndexFunc(list, func(s config.Setting) bool { return s.Key == key || strings.EqualFold(config.GitKey(s.Key), key) })
		if i < 0 {
			return unknownSetting(key, list)
		}
		list = list[i : i+1]
	} else {
		unknown := config.Unknown(repo)
		slices.Sort(unknown)
		c.warnEach(unknown, func(key string) string {
			warning := "git config has " + output.Quoted(key) + ", which is no setting"
			if near := config.Nearest(key); near != "" {
				warning += ": did you mean " + output.Quoted(near) + "?"
			}
			return warning
		})
	}
	c.settings(list)
	return nil
}

func unknownSetting(key string, list []config.Setting) error {
	names := make([]string, len(list))
	for i, s := range list {
		names[i] = s.Key
	}
	e := fault.New(fault.Invalid, "unknown-setting", "there is no setting %s", output.Quoted(key))
	near := refs.Nearest(key, names)
	if near == "" {
		near = config.Nearest(key)
	}
	if near != "" {
		return e.WithHint("did you mean '%s'?", near)
	}
	return e.WithHint("git checkpoint config lists the settings")
}

// settings prints settings in aligned columns.
func (c *call) settings(list []config.Setting) {
	if c.JSON() {
		for _, s := range list {
			c.Object(s)
		}
		return
	}
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, s := range list {
		value := fmt.Sprint(s.Value)
		if patterns, ok := s.Value.([]string); ok {
			value = strings.Join(patterns, " ")
		}
		fmt.Fprintf(table, "%s\t= %s\t(%s)\n", s.Key, output.Text(value), output.Text(s.Origin))
	}
	table.Flush()
	c.Printf("%s", text.String())
}
