package object

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/adler32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pjbgf/sha1cd"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// shattered is the part of the files of https://shattered.io that is made to
// collide. No attack is known on what begins as a blob does.
const shattered = `JVBERi0xLjMKJeLjz9MKCgoxIDAgb2JqCjw8L1dpZHRoIDIgMCBSL0hlaWdodCAzIDAgUi9UeXBlIDQgMCBSL1N1YnR5cGUgNSAw
IFIvRmlsdGVyIDYgMCBSL0NvbG9yU3BhY2UgNyAwIFIvTGVuZ3RoIDggMCBSL0JpdHNQZXJDb21wb25lbnQgOD4+CnN0cmVhbQr/
2P/+ACRTSEEtMSBpcyBkZWFkISEhISGFL+wJIzl1nDmxocY8TJfh//4Bc0bckWa2fhGPApq2IbJWD/nKZ8yox/hbqEx5AwwrPeIY
+G2zqQkB1d9FwU8m/t+z3DjpasIv571yjw5FvOBG0jxXD+sUE5i7VS71oKgr4zH+pIA3uLXXHw4zLt+TrDUA603cDezBqGR5DHgs
diFWYN0wl5HQa9CvP5jNpLxGKbE=`

func TestCollisionIsDetected(t *testing.T) {
	t.Parallel()
	data, err := base64.StdEncoding.DecodeString(shattered)
	if err != nil {
		t.Fatal(err)
	}
	h := hasher{sha1cd.New().(sha1cd.CollisionResistantHash)}
	h.Write(data)
	if _, err := h.id(); !errors.Is(err, fault.Integrity) {
		t.Errorf("the attack is not detected: %v", err)
	}
	h = newHasher(Blob, int64(len(data)))
	h.Write(data)
	if id, err := h.id(); err != nil || id.String() != ID("sha1", Blob, data) {
		t.Errorf("as a blob it is %s, %v", id, err)
	}
}

func TestJoinAdler(t *testing.T) {
	t.Parallel()
	data := []byte(strings.Repeat("\xff\x00\xfe many bytes \xff\xff\xff", 20000))
	for _, at := range []int{0, 1, 2, 65520, 65521, 65522, len(data) - 1, len(data)} {
		a, b := adler32.Checksum(data[:at]), adler32.Checksum(data[at:])
		if got, want := joinAdler(a, b, int64(len(data)-at)), adler32.Checksum(data); got != want {
			t.Errorf("joined at %d: %x, want %x", at, got, want)
		}
	}
}

// Packs of more than 2 GiB have offsets that a test does not make a pack for;
// git reads the index without it.
func TestPackIndexOfLargePack(t *testing.T) {
	t.Parallel()
	offsets := []int64{12, 1<<31 - 1, 1 << 31, 1<<32 + 5, 1 << 40}
	var entries []packEntry
	want := map[string]bool{}
	for i, offset := range offsets {
		var id Hash
		binary.BigEndian.PutUint32(id[:], uint32(0x1000000*(200-i)))
		entries = append(entries, packEntry{id, uint32(i), offset})
		want[fmt.Sprintf("%d %s (%08x)", offset, id, i)] = true
	}
	name := filepath.Join(t.TempDir(), "pack-x.idx")
	if err := os.WriteFile(name, encodePackIndex(entries, Hash{1}), 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("git", "show-index")
	cmd.Stdin = f
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(offsets) {
		t.Errorf("git finds %d objects, want %d", len(lines), len(offsets))
	}
	for _, line := range lines {
		if !want[line] {
			t.Errorf("git finds '%s'", line)
		}
	}
	idx, err := openFile(name)
	if err != nil {
		t.Fatal(err)
	}
	defer idx.Close()
	p, err := newPackIndex("x.pack", idx)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if offset, ok := p.find(e.id); !ok || offset != e.offset {
			t.Errorf("%s is at %d, %v; want %d", e.id, offset, ok, e.offset)
		}
	}
	for _, absent := range []Hash{{}, {0xff}, {200, 1}} {
		if offset, ok := p.find(absent); ok {
			t.Errorf("%s, which is not there, is at %d", absent, offset)
		}
	}
}
