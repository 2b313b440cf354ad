package object

import "slices"

// SortTree sorts entries as git does: a directory as if its name ended in '/'.
func SortTree(entries []TreeEntry) {
	slices.SortFunc(entries, func(a, b TreeEntry) int {
		x, y := sortName(a), sortName(b)
		switch {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

func sortName(e TreeEntry) string {
	if e.Mode == ModeTree {
		return e.Name + "/"
	}
	return e.Name
}
