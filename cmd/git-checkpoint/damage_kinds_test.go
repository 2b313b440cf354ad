//go:build unix

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// damages are the ways in which a repository is damaged. Each takes place with
// the same chance.
var damages = []func(*damaged) damage{
	refFile, refFile, refFile, packedRefs, refLock, restoring,
	noteRemoved, noteLines, noteLines, notesSwapped,
	objectFile, objectFile, objectFile, objectFile, objectsSwapped, packFile, packGone,
	ownFile, ownFile, headFile, gitFile, index, shallow, linkedWorktree,
}

// ask runs git, which may fail on what is damaged already.
func (d *damaged) ask(args ...string) string {
	out, _ := d.run(args...)
	return out
}

func pick[T any](d *damaged, from []T) T { return from[d.random.Intn(len(from))] }

// anyRef is one of our refs.
func (d *damaged) anyRef() string { return pick(d, slices.Sorted(maps.Keys(d.s.refs))) }

// namesOf is what verify may call a ref by: its name or its run's.
func namesOf(ref string) []string {
	return []string{ref, "/" + filepath.Base(ref), "'" + filepath.Base(ref) + "'"}
}

// mayGo says whether a ref can be gone, or be an older one, without anything
// that tells.
func mayGo(ref string) bool {
	return ref == "refs/checkpoints/pruned" || strings.HasPrefix(ref, "refs/checkpoints/local/") || strings.HasPrefix(ref, "refs/checkpoints/remotes/")
}

func (d *damaged) path(name string) string {
	return filepath.Join(d.dir, ".git", filepath.FromSlash(name))
}

// put writes a file of the git directory, whatever stands there.
func (d *damaged) put(name, content string) {
	file := d.path(name)
	os.MkdirAll(filepath.Dir(file), 0o777)
	os.RemoveAll(file)
	os.WriteFile(file, []byte(content), 0o666)
}

// get reads a file of the git directory; what is gone is empty.
func (d *damaged) get(name string) string {
	data, _ := os.ReadFile(d.path(name))
	return string(data)
}

// spoil damages bytes.
func (d *damaged) spoil(content string) (spoilt, how string) {
	n := len(content)
	if n == 0 {
		return "x", "a byte more"
	}
	at := d.random.Intn(n)
	switch d.random.Intn(6) {
	case 0:
		return "", "emptied"
	case 1:
		return content[:at], fmt.Sprintf("cut at %d of %d", at, n)
	case 2:
		return content[:at] + string(content[at]^(1<<d.random.Intn(8))) + content[at+1:], fmt.Sprintf("a bit of byte %d of %d", at, n)
	case 3:
		return strings.Repeat("\x00", n), "zeroed"
	case 4:
		return content[:at] + strings.Repeat("\x00", n-at), fmt.Sprintf("zeroed from %d of %d", at, n)
	}
	junk := make([]byte, 1+d.random.Intn(200))
	d.random.Read(junk)
	return string(junk), "junk"
}

func refFile(d *damaged) damage {
	ref := d.anyRef()
	names, id := namesOf(ref), d.s.refs[ref]
	write := func(what, content string) damage {
		d.put(ref, content)
		return damage{what: "ref " + ref + ": " + what, names: names}
	}
	switch d.random.Intn(9) {
	case 0:
		d.run("update-ref", "-d", ref)
		return damage{what: "ref " + ref + ": deleted", names: names, benign: mayGo(ref)}
	case 1:
		return write("absent object", fmt.Sprintf("%040x\n", d.random.Int63()))
	case 2:
		out := d.ask("rev-parse", "HEAD:file")
		return write("a blob", out+"\n")
	case 3:
		return write("a loop", "ref: "+ref+"\n")
	case 4:
		other := d.anyRef()
		return write("what "+other+" holds", d.s.refs[other]+"\n")
	case 5:
		return write("a symbolic ref", "ref: "+d.anyRef()+"\n")
	case 6:
		os.Remove(d.path(ref))
		os.MkdirAll(d.path(ref+"/x"), 0o777)
		os.WriteFile(d.path(ref+"/x/y"), []byte(id+"\n"), 0o666)
		return damage{what: "ref " + ref + ": a directory", names: names}
	case 7:
		parent, err := d.run("rev-parse", "--verify", id+"^")
		if err != nil {
			parent = d.ask("rev-parse", "HEAD")
		}
		return write("its parent", parent+"\n")
	}
	content, how := d.spoil(id + "\n")
	return write(how, content)
}

func packedRefs(d *damaged) damage {
	lines := strings.SplitAfter(d.get("packed-refs"), "\n")
	if len(lines) < 3 {
		return damage{what: "none"}
	}
	i := 1 + d.random.Intn(len(lines)-2)
	_, name, _ := strings.Cut(strings.TrimSpace(lines[i]), " ")
	names := append(namesOf(name), "packed-refs")
	if d.random.Intn(3) == 0 {
		lines[i] = ""
	} else {
		lines[i], _ = d.spoil(lines[i])
	}
	d.put("packed-refs", strings.Join(lines, ""))
	return damage{what: fmt.Sprintf("packed-refs: the line of %s is %q", name, lines[i]), names: names}
}

// refLock leaves a lock; not that of packed-refs, for which every deletion of a
// ref waits ten seconds.
func refLock(d *damaged) damage {
	name := pick(d, []string{"refs/checkpoints/runs/again.lock", "HEAD.lock", "CHECKPOINT_HEAD.lock", "refs/notes/checkpoints/again.lock", "index.lock", "config.lock"})
	d.put(name, "")
	return damage{what: name + " is left", benign: true}
}

// restoring makes it look as if an operation was killed.
func restoring(d *damaged) damage {
	id := strings.TrimSpace(d.get("checkpoint/worktree-id"))
	from := pick(d, []string{"undo/000001", "undo/000002", "redo/000001", "index"})
	commit, ok := d.s.refs["refs/checkpoints/local/"+id+"/"+from]
	if !ok {
		commit = d.s.refs["refs/checkpoints/runs/base"]
	}
	d.put("refs/checkpoints/local/"+id+"/restoring", commit+"\n")
	return damage{what: "an operation is under way: " + from, names: []string{"/restoring"}}
}

// anyNote is a run and one of its objects with a note.
func (d *damaged) anyNote() (run, object string) {
	run = pick(d, d.s.runs)
	return run, pick(d, d.s.notes[run])
}

func noteRemoved(d *damaged) damage {
	run, object := d.anyNote()
	d.ask("notes", "--ref=checkpoints/"+run, "remove", object)
	return damage{what: "note of " + object + " in " + run + " is removed", names: []string{object}}
}

func (d *damaged) setNote(run, object, content string) {
	file := filepath.Join(d.dir, "..", "note")
	os.WriteFile(file, []byte(content), 0o666)
	blob := d.ask("hash-object", "-w", file)
	d.ask("notes", "--ref=checkpoints/"+run, "add", "-f", "-C", blob, object)
}

func noteLines(d *damaged) damage {
	run, object := d.anyNote()
	note := d.ask("notes", "--ref=checkpoints/"+run, "show", object) + "\n"
	lines := strings.SplitAfter(strings.TrimSuffix(note, "\n"), "\n")
	i := d.random.Intn(len(lines))
	lines[len(lines)-1] += "\n"
	what, benign := "", false
	switch d.random.Intn(8) {
	case 0:
		what, lines[i] = "cut", lines[i][:d.random.Intn(len(lines[i])-1)]+"\n"
	case 1:
		what, lines[i] = "no JSON", "no JSON\n"
	case 2:
		what, lines[i], benign = "unknown field", strings.TrimSuffix(lines[i], "}\n")+`,"later":{"a":[1]}}`+"\n", true
	case 3:
		what, lines = "twice", append(lines, strings.Replace(lines[i], `"event":"`, `"event":"x`, 1))
	case 4:
		what, lines = "an empty line", append(lines, "\n")
	case 5:
		what, lines[i] = "values of other types", strings.NewReplacer(`:"`, `:["`, `",`, `"],`).Replace(lines[i])
	case 6:
		what, lines[i] = "a string is a number", strings.Replace(lines[i], `"event":"`, `"n":1,"event":7,"was":"`, 1)
	default:
		content, how := d.spoil(note)
		what, lines = how, []string{content}
	}
	d.setNote(run, object, strings.Join(lines, ""))
	return damage{what: fmt.Sprintf("note of %s in %s: line %d: %s", object, run, i+1, what), names: []string{object}, benign: benign}
}

// notesSwapped gives two objects each other's note.
func notesSwapped(d *damaged) damage {
	run, a := d.anyNote()
	b := pick(d, d.s.notes[run])
	one, two := d.ask("notes", "--ref=checkpoints/"+run, "list", a), d.ask("notes", "--ref=checkpoints/"+run, "list", b)
	d.ask("notes", "--ref=checkpoints/"+run, "add", "-f", "-C", one, b)
	d.ask("notes", "--ref=checkpoints/"+run, "add", "-f", "-C", two, a)
	return damage{what: "notes of " + a + " and " + b + " in " + run + " are swapped", names: []string{a, b, run}, benign: a == b}
}

// looseObjects lists the files of loose objects that our refs reach.
func (d *damaged) looseObjects() []string {
	var files []string
	for _, id := range d.s.objects {
		file := "objects/" + id[:2] + "/" + id[2:]
		if _, err := os.Lstat(d.path(file)); err == nil {
			files = append(files, file)
		}
	}
	return files
}

func idOf(file string) string {
	return strings.ReplaceAll(strings.TrimPrefix(file, "objects/"), "/", "")
}

func objectFile(d *damaged) damage {
	file := pick(d, d.looseObjects())
	id := idOf(file)
	kind, _ := d.run("cat-file", "-t", id)
	how := "deleted"
	switch d.random.Intn(4) {
	case 0:
		os.Remove(d.path(file))
	case 1:
		how = "mode 000"
		os.Chmod(d.path(file), 0)
		return damage{what: kind + " " + id + ": " + how, names: []string{id}, benign: os.Geteuid() == 0}
	default:
		var content string
		content, how = d.spoil(d.get(file))
		d.put(file, content)
	}
	return damage{what: kind + " " + id + ": " + how, names: []string{id}}
}

func objectsSwapped(d *damaged) damage {
	a, b := pick(d, d.looseObjects()), pick(d, d.looseObjects())
	one, two := d.get(a), d.get(b)
	d.put(a, two)
	d.put(b, one)
	return damage{what: "objects " + idOf(a) + " and " + idOf(b) + " are swapped", names: []string{idOf(a), idOf(b)}, benign: a == b}
}

func (d *damaged) packs() []string {
	files, _ := filepath.Glob(d.path("objects/pack/*"))
	for i := range files {
		files[i] = "objects/pack/" + filepath.Base(files[i])
	}
	return files
}

func (d *damaged) packNames() []string {
	if len(d.packs()) == 0 {
		return nil
	}
	return append(slices.Clone(d.s.objects), strings.TrimSuffix(filepath.Base(d.packs()[0]), filepath.Ext(d.packs()[0])))
}

func packFile(d *damaged) damage {
	if len(d.packs()) == 0 {
		return damage{what: "none"}
	}
	file, names := pick(d, d.packs()), d.packNames()
	content, how := d.spoil(d.get(file))
	d.put(file, content)
	return damage{what: file + ": " + how, names: names}
}

func packGone(d *damaged) damage {
	if len(d.packs()) == 0 {
		return damage{what: "none"}
	}
	file, names := pick(d, d.packs()), d.packNames()
	os.Remove(d.path(file))
	return damage{what: file + ": deleted", names: names}
}

// ownFile damages a file of checkpoint/ in the git directory.
func ownFile(d *damaged) damage {
	name := "checkpoint/" + pick(d, []string{"worktree-id", "lock", "transaction", "index", "index.key", "unignored", "refs-lock", "sessions"})
	content := ""
	if data, err := os.ReadFile(d.path(name)); err == nil {
		content = string(data)
	}
	how := ""
	switch d.random.Intn(5) {
	case 0:
		how = "deleted"
		os.RemoveAll(d.path(name))
	case 1:
		how = "a directory"
		os.RemoveAll(d.path(name))
		os.MkdirAll(d.path(name+"/x"), 0o777)
	default:
		os.RemoveAll(d.path(name))
		content, how = d.spoil(content)
		d.put(name, content)
	}
	return damage{what: name + ": " + how, names: []string{filepath.Base(name)}}
}

func headFile(d *damaged) damage {
	name := pick(d, []string{"HEAD", "CHECKPOINT_HEAD", "refs/heads/main"})
	switch d.random.Intn(4) {
	case 0:
		d.put(name, "ref: refs/"+pick(d, []string{"heads/none", "checkpoints/runs/none", "checkpoints/runs/base", "checkpoints/runs/a..b"})+"\n")
	case 1:
		d.put(name, "ref: "+name+"\n")
	case 2:
		os.Remove(d.path(name))
	default:
		content, _ := d.spoil(d.get(name))
		d.put(name, content)
	}
	content, _ := os.ReadFile(d.path(name))
	return damage{what: fmt.Sprintf("%s: %.60q", name, content), names: []string{name, "not a git repository"}, hides: name == "CHECKPOINT_HEAD"}
}

func gitFile(d *damaged) damage {
	switch d.random.Intn(3) {
	case 0:
		content, how := d.spoil(d.get("config"))
		d.put("config", content)
		return damage{what: "config: " + how, names: []string{"config"}}
	case 1:
		line := pick(d, []string{"[checkpoint]\n\tautoCheckpoint = perhaps\n", "[checkpoint \"snapshot\"]\n\tmaxFileSize = -3q\n", "[checkpoint]\n\tnone = 1\n", "[core]\n\trepositoryFormatVersion = 9\n",
			"[extensions]\n\tobjectFormat = sha3\n", "[core]\n\tbare = perhaps\n", "[include]\n\tpath = config\n", "[core]\n\tcompression = 99\n"})
		d.put("config", d.get("config")+line)
		return damage{what: fmt.Sprintf("config: %q is added", line), names: []string{"config", "checkpoint.", "maxFileSize", "bare", "Format", "compression", "include", "repo version"}}
	}
	name := pick(d, []string{"objects/info/alternates", "info/grafts", "info/attributes", "info/exclude", "commondir", "objects/info/commit-graph", "objects/info/packs", "MERGE_HEAD", "sequencer/todo", "rebase-merge/onto"})
	content := pick(d, []string{"", "\x00\x00", "/nowhere/at/all\n", "../../../x\n", strings.Repeat("0", 40) + "\n", d.s.refs["refs/checkpoints/runs/base"] + "\n"})
	d.put(name, content)
	return damage{what: fmt.Sprintf("%s: %.60q", name, content), names: []string{filepath.Base(name), "/nowhere", "not a git repository"}}
}

func index(d *damaged) damage {
	content, how := d.spoil(d.get("index"))
	d.put("index", content)
	return damage{what: "index: " + how, names: []string{"index"}}
}

func shallow(d *damaged) damage {
	content := pick(d, []string{"junk\n", strings.Repeat("1", 40) + "\n", d.s.refs["refs/checkpoints/runs/again"] + "\n", d.ask("rev-parse", "HEAD") + "\n", ""})
	d.put("shallow", content)
	return damage{what: fmt.Sprintf("shallow: %.50q", content), names: []string{"shallow"}, hides: true}
}

// linkedWorktree leaves what is no worktree any more.
func linkedWorktree(d *damaged) damage {
	exec.Command("git", "-C", d.dir, "worktree", "add", "-q", "--detach", "../linked").Run()
	name := "worktrees/linked/" + pick(d, []string{"gitdir", "HEAD", "commondir", "CHECKPOINT_HEAD", "checkpoint/worktree-id", "index"})
	content := pick(d, []string{"", "junk\n", "/nowhere/.git\n", "ref: refs/checkpoints/runs/base\n"})
	d.put(name, content)
	return damage{what: fmt.Sprintf("%s: %q", name, content), names: []string{"linked", "/nowhere"}}
}
