//go:build !unix

package git

func isNotDirectory(error) bool { return false }
