//go:build !linux

package restore

import "github.com/git-checkpoint/git-checkpoint/internal/git"

func look(repo *git.Repo, files []expectation) ([]string, error) { return lookByPath(repo, files) }
