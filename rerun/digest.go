package rerun

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// Digest is the SHA-256, in hex, of all that the plan says. How its file
// writes it does not matter.
func (p *Plan) Digest() string {
	fixed := *p
	fixed.Tasks = make([]Task, len(p.Tasks))
	for i := range p.Tasks {
		fixed.Tasks[i] = p.Tasks[i].sorted()
	}
	return digest(fixed)
}

// TaskDigest is the SHA-256, in hex, of what fixes a task: its fields, its
// member, and its edges. It is empty where there is no such task.
func (p *Plan) TaskDigest(id string) string {
	t := p.Task(id)
	if t == nil {
		return ""
	}
	fixed := struct {
		Task   Task              `json:"task"`
		Member *Member           `json:"member"`
		Edges  []Edge            `json:"edges"`
		Inputs map[string]string `json:"inputs"` // artifact name → path
	}{t.sorted(), p.Member(t.Member), p.DependsOn(id), map[string]string{}}
	slices.SortFunc(fixed.Edges, compareEdges)
	for _, name := range t.Uses {
		if producer := p.Producer(name); producer != nil {
			fixed.Inputs[name] = producer.Produces[name]
		}
	}
	return digest(fixed)
}

// sorted is the task without the order of what it names, which does not
// matter.
func (t Task) sorted() Task {
	for _, list := range []*[]string{&t.Uses, &t.Owns, &t.After, &t.Knows} {
		*list = slices.Sorted(slices.Values(*list))
	}
	return t
}

// digest is the SHA-256, in hex, of a value's canonical JSON.
func digest(v any) string {
	sum := sha256.Sum256(canonical(v))
	return hex.EncodeToString(sum[:])
}

// canonical is a value as JSON with one way to write it: the keys of objects
// sorted by their bytes, no space, nothing escaped that need not be. It panics
// on what is no JSON, which our types never are.
func canonical(v any) []byte {
	plain, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("rerun: encode %T: %v", v, err))
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber()
	var generic any
	if err := d.Decode(&generic); err != nil {
		panic(fmt.Sprintf("rerun: decode %T again: %v", v, err))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(generic); err != nil {
		panic(fmt.Sprintf("rerun: encode %T: %v", v, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
