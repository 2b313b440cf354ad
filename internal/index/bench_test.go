package index

import (
	"fmt"
	"testing"
)

// largeIndex is an index of 100,000 files in 1,000 directories.
func largeIndex() *Index {
	x := &Index{Entries: make([]Entry, 100_000)}
	for i := range x.Entries {
		x.Entries[i] = Entry{
			Mode: ModeFile,
			ID:   fmt.Sprintf("%040x", i+1),
			Path: fmt.Sprintf("source/module%03d/package/file-%05d.go", i/100, i),
		}
	}
	return x
}

func BenchmarkParse(b *testing.B) {
	data := encode(b, largeIndex(), 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(data, 20); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	x := largeIndex()
	b.ReportAllocs()
	for b.Loop() {
		encode(b, x, 20)
	}
}

func BenchmarkBuildTrees(b *testing.B) {
	entries := treeEntries(largeIndex())
	b.ReportAllocs()
	for b.Loop() {
		store := &treeStore{hashLen: 20}
		if _, err := BuildTrees(entries, nil, 20, store.put); err != nil {
			b.Fatal(err)
		}
	}
}
