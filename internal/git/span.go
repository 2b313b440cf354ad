package git

import "time"

// Span begins a part of a command's work; a trace says how long it took until
// the function that is returned was called.
func Span(what string) (end func()) {
	if traceTo == "" || traceTo == "0" {
		return func() {}
	}
	begun := time.Now()
	return func() { Trace("%6.1f ms %s", float64(time.Since(begun).Microseconds())/1000, what) }
}
