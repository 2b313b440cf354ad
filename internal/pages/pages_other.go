//go:build !linux

package pages

// Expect is told how many bytes the program is about to allocate. Only on Linux
// there is something to be done about it.
func Expect(int) {}
