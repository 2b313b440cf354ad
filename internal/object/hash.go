package object

import (
	"encoding/hex"
	"strconv"

	"github.com/pjbgf/sha1cd"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// Hash is the id of an object in a SHA-1 repository.
type Hash [20]byte

// String returns the id as git prints it.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ParseHash reads an id of 40 lower-case digits; ok is false for anything else.
func ParseHash(id string) (h Hash, ok bool) {
	if len(id) != 40 || !IsID(id) {
		return h, false
	}
	_, err := hex.Decode(h[:], []byte(id))
	return h, err == nil
}

// hasher computes an id while the content is written to it, and detects the
// known attacks on SHA-1, as git does.
type hasher struct{ sha1cd.CollisionResistantHash }

func newHasher(kind Kind, size int64) hasher {
	h := hasher{sha1cd.New().(sha1cd.CollisionResistantHash)}
	h.Write(objectHeader(kind, size))
	return h
}

func (h hasher) id() (id Hash, err error) {
	sum, attacked := h.CollisionResistantSum(nil)
	copy(id[:], sum)
	if attacked {
		return id, fault.New(fault.Integrity, "sha1-collision", "hash object %s: its content is made to have the id of another", id).
			WithHint("git refuses to store it as well; remove or ignore the file")
	}
	return id, nil
}

// objectHeader is what git puts before a content that it hashes or stores loose.
func objectHeader(kind Kind, size int64) []byte { return appendHeader(nil, kind, size) }

func appendHeader(to []byte, kind Kind, size int64) []byte {
	return append(strconv.AppendInt(append(append(to, kind...), ' '), size, 10), 0)
}
