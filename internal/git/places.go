package git

import (
	"os/exec"
	"path/filepath"
	"slices"
)

// Places are directories below which git may have been installed, such as
// /usr: those that hold "bin/git", by its own name and by what that leads to.
func Places() []string {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil
	}
	var places []string
	add := func(program string) {
		dir := filepath.Dir(program)
		if filepath.Base(dir) == "git-core" {
			// git comes first in the PATH of what it starts, by the programs of
			// its own: /usr/lib/git-core/git, /usr/libexec/git-core/git.
			dir = filepath.Dir(dir)
		}
		if place := filepath.Dir(dir); !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	add(program)
	if real, err := filepath.EvalSymlinks(program); err == nil {
		add(real)
	}
	return places
}
