//go:build !linux && !darwin

package index

import "io/fs"

// StatOf returns the part of what git would remember of a file that is the same
// on every system: the size and the modification time. fi must come from
// Lstat, since git does not follow symbolic links.
func StatOf(fi fs.FileInfo) Stat {
	return portableStatOf(fi)
}
