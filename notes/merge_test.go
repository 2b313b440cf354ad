package notes

import (
	"bytes"
	"errors"
	"math/rand"
	"reflect"
	"strings"
	"testing"
	"testing/quick"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// someNote is a generated note: lines from a small supply, so that notes have
// lines, ids and events in common, in any order and repeated.
type someNote []byte

func (someNote) Generate(r *rand.Rand, size int) reflect.Value {
	ids := []string{id1, id2, id3, "01BX5ZZKBKZZZZZZZZZZZZZZZZ"}
	extras := []string{`"v":1`, `"v": 1`, `"later":{"z":[null,1e9],"a":"\u00e9"}`, `"text":"a\nb"`, `"text":"` + "\u2028" + `"`, `"":0`}
	var n []byte
	for range r.Intn(size + 1) {
		var members []string
		for range r.Intn(3) {
			members = append(members, extras[r.Intn(len(extras))])
		}
		n = append(n, line(ids[r.Intn(len(ids))], []string{"created", "status", "from the future"}[r.Intn(3)], members...)+"\n"...)
	}
	if len(n) > 0 && r.Intn(4) == 0 {
		n = n[:len(n)-1]
	}
	return reflect.ValueOf(someNote(n))
}

func union(t *testing.T, notes ...[]byte) []byte {
	t.Helper()
	n, err := Union(notes...)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestUnionIsAJoin(t *testing.T) {
	for law, holds := range map[string]any{
		"it commutes": func(a, b someNote) bool {
			return bytes.Equal(union(t, a, b), union(t, b, a))
		},
		"it associates": func(a, b, c someNote) bool {
			left, right := union(t, union(t, a, b), c), union(t, a, union(t, b, c))
			return bytes.Equal(left, right) && bytes.Equal(left, union(t, a, b, c))
		},
		"a note joined to itself is that note, in order": func(a someNote) bool {
			once := union(t, a, a)
			return bytes.Equal(once, union(t, a)) && bytes.Equal(once, union(t, once, once))
		},
		"a join takes in both sides": func(a, b someNote) bool {
			u := union(t, a, b)
			return bytes.Equal(union(t, u, a), u) && bytes.Equal(union(t, u, b), u)
		},
		"nothing is lost, nothing made up, nothing wrong": func(a, b someNote) bool {
			want := map[string]bool{}
			for _, l := range strings.Split(string(a)+"\n"+string(b), "\n") {
				if l != "" {
					want[l] = true
				}
			}
			u := union(t, a, b)
			got := map[string]bool{}
			for _, l := range strings.Split(strings.TrimSuffix(string(u), "\n"), "\n") {
				if l != "" {
					got[l] = true
				}
			}
			return reflect.DeepEqual(got, want) && len(Check(u)) == 0
		},
	} {
		t.Run(law, func(t *testing.T) {
			if err := quick.Check(holds, &quick.Config{MaxCount: 300, Rand: rand.New(rand.NewSource(1))}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnionOfNothingIsEmpty(t *testing.T) {
	if n := union(t); len(n) != 0 {
		t.Errorf("got %q", n)
	}
}

func TestUnionRefusesASideThatItCannotParse(t *testing.T) {
	good := jsonl(line(id1, "a"))
	for _, bad := range [][]byte{[]byte("free text\n"), append(good, "\n"...)} {
		for _, sides := range [][][]byte{{good, bad}, {bad, good}} {
			n, err := Union(sides...)
			if n != nil || !errors.Is(err, fault.Integrity) {
				t.Errorf("Union: %q, %v", n, err)
			}
		}
	}
	_, err := Union(good, []byte("free text\n"))
	if want := "merge notes: side 2: read note: line 1: it is not JSON"; err == nil || err.Error() != want {
		t.Errorf("it says %v, want %s", err, want)
	}
}
