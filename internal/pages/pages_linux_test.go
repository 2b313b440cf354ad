package pages

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"unsafe"
)

// What is allocated after Expect lies where the system was asked for huge pages.
func TestExpect(t *testing.T) {
	mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil || strings.Contains(string(mode), "[never]") {
		t.Skip("this system has no transparent huge pages")
	}
	Expect(64 << 20)
	room := make([]byte, 8<<20)
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(room)))) + 4<<20
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Skip("this system does not tell of its memory")
	}
	var begin, end uint64
	for line := range strings.Lines(string(smaps)) {
		if n, _ := fmt.Sscanf(line, "%x-%x ", &begin, &end); n == 2 {
			continue
		}
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok && begin <= at && at < end {
			if !strings.Contains(flags, " hg") {
				t.Errorf("the memory has the flags %s", flags)
			}
			return
		}
	}
	t.Skip("the memory is in no mapping that the system tells of")
}

// What is expected may be wrong: it is nothing that memory runs out by.
func TestExpectTooMuch(t *testing.T) {
	for _, bytes := range []int{-1, math.MinInt, math.MaxInt} {
		Expect(bytes)
	}
}
