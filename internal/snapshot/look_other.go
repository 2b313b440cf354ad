//go:build !linux

package snapshot

import "github.com/git-checkpoint/git-checkpoint/internal/git"

func look(repo *git.Repo, files []Expectation) ([]string, error) { return lookByPath(repo, files) }
