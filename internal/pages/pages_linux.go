// Package pages knows how the system gives memory to the program.
package pages

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hugePage is the size of a huge page nearly everywhere. Where they are larger
// the system passes over what is asked here.
const hugePage = 2 << 20

// most is how much is asked for at once: what is expected may be wrong.
const most = 256 << 20

// Expect is told how many bytes the program is about to allocate, in many
// pieces. Memory comes from the system in pages of 4 KiB, and the first touch
// of each is a fault: a microsecond on some machines, ten on others, for each
// of thousands. So that they are huge pages instead, an array is allocated,
// which touches nothing, the system is asked for huge pages in its place
// (Documentation/admin-guide/mm/transhuge.rst), and the collector gives it to
// those who allocate next.
func Expect(bytes int) {
	if bytes < 4*hugePage {
		return
	}
	room := make([]byte, min(bytes, most))
	Large(room)
	runtime.KeepAlive(room)
	runtime.GC()
}

// Large is told of new memory of which all is going to be used: where it is
// many pages, the system is asked for huge ones.
func Large(room []byte) {
	room = room[:cap(room)]
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(room)))
	if skip := int(-begin & (hugePage - 1)); skip+hugePage <= len(room) {
		// Without huge pages this is an error, and all is as it was.
		_ = unix.Madvise(room[skip:], unix.MADV_HUGEPAGE)
	}
}
