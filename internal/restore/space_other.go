//go:build !linux

package restore

import "os"

// spaceLeft is not asked for here: everything lies ready on disk.
func spaceLeft(string) space { return space{} }

func reserve(*os.File, int) {}
