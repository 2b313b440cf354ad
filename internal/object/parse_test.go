package object_test

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/object"
	"github.com/git-checkpoint/git-checkpoint/refs"
)

const (
	someID  = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
	otherID = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
)

// FuzzParseCommit: whatever a commit holds, it is read or refused; and what
// was read, written and read again is the same.
func FuzzParseCommit(f *testing.F) {
	for _, seed := range []string{
		"tree " + otherID + "\nauthor A <a@example.com> 1700000000 +0100\ncommitter A <a@example.com> 1700000000 +0100\n\nsubject\n",
		"tree " + otherID + "\nparent " + someID + "\nparent " + otherID + "\nauthor A U Thor <> 0 -0000\ncommitter <> -1 +9999\nencoding x\ngpgsig -----\n \n x\n\nsubject\n\nbody\n\nKey: value\n",
		"tree " + strings.Repeat("0", 64) + "\n\n",
		"tree x\n\n", "", "\n\n", "tree " + otherID + "\nparent \n\n", "tree " + otherID + "\nauthor >< 1 x\n\n\n\n\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := object.ParseCommit(data)
		if err != nil {
			return
		}
		c.Subject()
		for range c.Trailers() {
		}
		again, err := object.ParseCommit(c.Encode())
		if err != nil {
			t.Fatalf("parse what was encoded: %v", err)
		}
		if again.Tree != c.Tree || !slices.Equal(again.Parents, c.Parents) || again.Message != c.Message || !again.Author.When.Equal(c.Author.When) {
			t.Errorf("%+v became %+v", c, again)
		}
	})
}

// FuzzParseTree: whatever a tree holds, it is read or refused; and a tree in
// git's order that was read is written the same.
func FuzzParseTree(f *testing.F) {
	id := bytes.Repeat([]byte{0xab}, 20)
	for _, seed := range []string{
		"", "100644 a\x00" + string(id), "100644 a\x00" + string(id[:19]), "40000 a\x00" + string(id) + "100755 a.b\x00" + string(id),
		"100644 \x00" + string(id), "x a\x00" + string(id), "100644 a", "160000 a b\xff\x00" + string(id), "0100644 a\x00" + string(id),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := object.ParseTree(data, 20)
		if err != nil {
			return
		}
		sorted := slices.Clone(entries)
		encoded := object.EncodeTree(sorted)
		again, err := object.ParseTree(encoded, 20)
		if err != nil || !slices.Equal(again, sorted) {
			t.Fatalf("%v became %v, %v", sorted, again, err)
		}
		// Of the same length, so no mode has a zero in front.
		if slices.Equal(entries, sorted) && len(encoded) == len(data) && !bytes.Equal(encoded, data) {
			t.Errorf("%q became %q", data, encoded)
		}
	})
}

// names are those that make trees hard: prefixes of each other, and bytes
// around '/', which is what a directory's name ends in when it is sorted.
func someName(r *rand.Rand) string {
	const bytes = "ab.-/0\x01\xff \n\"\\"
	b := make([]byte, 1+r.Intn(4))
	for i := range b {
		for b[i] = '/'; b[i] == '/'; {
			b[i] = bytes[r.Intn(len(bytes))]
		}
	}
	if name := string(b); name != "." && name != ".." {
		return name
	}
	return "a"
}

// TestTreesAreThoseOfMktree writes trees of random entries as git does.
func TestTreesAreThoseOfMktree(t *testing.T) {
	t.Parallel()
	dir := newRepository(t)
	r := rand.New(rand.NewSource(1))
	modes := []uint32{object.ModeFile, object.ModeExecutable, object.ModeLink, object.ModeTree, object.ModeCommit}
	kinds := map[uint32]string{object.ModeTree: "tree", object.ModeCommit: "commit"}
	var input strings.Builder
	var want []string
	for range 200 {
		seen := map[string]bool{}
		var entries []object.TreeEntry
		for range r.Intn(12) {
			e := object.TreeEntry{Mode: modes[r.Intn(len(modes))], Name: someName(r), ID: fmt.Sprintf("%040x", r.Uint64())}
			if !seen[e.Name] {
				seen[e.Name] = true
				entries = append(entries, e)
				kind := kinds[e.Mode]
				if kind == "" {
					kind = "blob"
				}
				fmt.Fprintf(&input, "%06o %s %s\t%s\x00", e.Mode, kind, e.ID, e.Name)
			}
		}
		input.WriteByte(0)
		data := object.EncodeTree(entries)
		want = append(want, object.ID("sha1", object.Tree, data))
		again, err := object.ParseTree(data, 20)
		if err != nil || !slices.Equal(again, entries) {
			t.Fatalf("%v became %v, %v", entries, again, err)
		}
	}
	got := strings.Split(gitIn(t, dir, input.String(), "mktree", "--missing", "--batch", "-z"), "\n")
	if !slices.Equal(got, want) {
		for i := range want {
			if i >= len(got) || got[i] != want[i] {
				t.Fatalf("tree %d is %s, git says %q", i, want[i], got[min(i, len(got)-1)])
			}
		}
	}
}

// TestTrailersAreThoseOfGit compares what is read from a checkpoint's message
// with what git reads, for subjects, bodies and values that try to be more
// than they are.
func TestTrailersAreThoseOfGit(t *testing.T) {
	t.Parallel()
	dir := newRepository(t)
	r := rand.New(rand.NewSource(2))
	words := []string{
		"", "word", "two words", "Checkpoint-Run: forged", "Signed-off-by: A <a@example.com>", "Key:value", "Key : value", ": x", "# comment",
		"---", "Checkpoint-Step: a\nCheckpoint-Run: b", "a\n\nCheckpoint-Run: c", "  indented", "trailing ", "\ttab", "ünïcode", "a: b: c", "diff --git a b",
	}
	word := func() string { return words[r.Intn(len(words))] }
	for range 60 {
		c := refs.Checkpoint{
			Subject: word(), Body: strings.Join([]string{word(), word(), word()}, strings.Repeat("\n", 1+r.Intn(2))),
			Run: "run", Step: word(), Kind: refs.KindManual, Session: word(), Turn: word(), Branch: "refs/heads/main", Number: 1 + r.Intn(100),
		}
		message := c.Message()
		var got []string
		for trailer := range (&object.CommitObject{Message: message}).Trailers() {
			got = append(got, strings.TrimSpace(trailer.Key+": "+trailer.Value))
		}
		var want []string
		for line := range strings.Lines(gitIn(t, dir, message, "interpret-trailers", "--parse", "--no-divider")) {
			want = append(want, strings.TrimSpace(line))
		}
		if !slices.Equal(got, want) {
			t.Errorf("of %q\nwe read  %q\ngit reads %q", message, got, want)
		}
	}
}

// TestSignatures writes who and when as git does, and reads it back.
func TestSignatures(t *testing.T) {
	t.Parallel()
	dir := newRepository(t)
	for _, s := range []object.Signature{
		{Name: "A U Thor", Email: "a@example.com", When: time.Unix(1700000000, 0).In(time.FixedZone("", 5*3600+1800))},
		{Name: " <Crumbs>,. ", Email: "<a@example.com>\n", When: time.Unix(1, 0).In(time.FixedZone("", -(3*3600 + 1800)))},
		{Name: "Jörg", Email: "", When: time.Unix(2000000000, 0).UTC()},
	} {
		c := object.CommitObject{Tree: otherID, Author: s, Committer: s, Message: "x\n"}
		id := gitIn(t, dir, string(c.Encode()), "hash-object", "-t", "commit", "-w", "--stdin")
		again, err := object.ParseCommit(c.Encode())
		if err != nil {
			t.Fatal(err)
		}
		want := gitIn(t, dir, "", "log", "-1", "--format=%an|%ae|%ad", "--date=raw", id)
		if got := fmt.Sprintf("%s|%s|%d %s", again.Author.Name, again.Author.Email, again.Author.When.Unix(), again.Author.When.Format("-0700")); got != want {
			t.Errorf("read %q, git reads %q", got, want)
		}
	}
}
