//go:build !linux

package pages

// Expect is told how many bytes the program is about to allocate. Only on Linux
// something is done about it.
func Expect(int) {}

// Large is told of new memory of which all is going to be used.
func Large([]byte) {}
