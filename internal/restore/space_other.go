//go:build !linux

package restore

import "os"

// spaceLeft is not asked for here: everything lies ready on disk.
func spaceLeft(string) int64 { return 0 }

func reserve(*os.File, int) {}
