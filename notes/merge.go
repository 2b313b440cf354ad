package notes

import "fmt"

// Union returns the note that holds every line of the given notes, sorted and
// unique. It is commutative, associative and idempotent (a join), so that
// clones that merge in any order end with equal notes. A note that Parse
// refuses is an error that matches fault.Integrity: guessing at its lines
// could lose some.
func Union(notes ...[]byte) ([]byte, error) {
	var all []Line
	for i, note := range notes {
		lines, err := Parse(note)
		if err != nil {
			return nil, fmt.Errorf("merge notes: side %d: %w", i+1, err)
		}
		all = append(all, lines...)
	}
	return Encode(all), nil
}
