package refs

import (
	"slices"
	"strings"
)

// Nearest returns the candidate that a mistyped name most likely means, or ""
// if none is near.
func Nearest(name string, candidates []string) string {
	if name == "" {
		return ""
	}
	best, distance := "", max(1, len(name)/3)
	for _, c := range candidates {
		if strings.EqualFold(c, name) {
			return c
		}
		if strings.HasPrefix(c, name) && len(name) >= 3 {
			return c
		}
		if d := editDistance(name, c, distance); d <= distance && (best == "" || d < distance) {
			best, distance = c, d
		}
	}
	return best
}

// editDistance counts the insertions, deletions, changes and swaps of
// neighbours between two names, giving up beyond limit.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		if slices.Min(row) > limit {
			return limit + 1
		}
		before, last = last, row
	}
	return last[len(b)]
}
