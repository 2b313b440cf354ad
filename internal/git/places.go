package git

import (
	"os/exec"
	"path/filepath"
)

// Places are directories below which git may have been installed, such as
// /usr: those that hold "bin/git", by its own name and by what that leads to.
func Places() []string {
	program, err := exec.LookPath("git")
	if err != nil {
		return nil
	}
	places := []string{filepath.Dir(filepath.Dir(program))}
	if real, err := filepath.EvalSymlinks(program); err == nil && real != program {
		places = append(places, filepath.Dir(filepath.Dir(real)))
	}
	return places
}
