//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// damageCases is how many repositories `go test` damages. By hand,
// GIT_CHECKPOINT_FUZZ=<duration> goes on for that long with other ones, and
// GIT_CHECKPOINT_FUZZ_SEED=<number> repeats one: the same damage at the same
// place, though some ids are others.
const damageCases = 20

// N.8: a repository with everything in it is damaged at random: refs, notes,
// objects, packs, git's files and ours. No command panics, each failure is one
// error with a hint, nothing more is lost, reading changes nothing, and what is
// damaged verify names.
func TestDamagedRepositories(t *testing.T) {
	t.Parallel()
	s := newSpecimen(t)
	var last atomic.Int64 // the seed that was taken last
	more := func() bool { return last.Load() < damageCases }
	if value := os.Getenv("GIT_CHECKPOINT_FUZZ"); value != "" {
		duration, err := time.ParseDuration(value)
		if err != nil {
			t.Fatal(err)
		}
		end := time.Now().Add(duration)
		last.Store(time.Now().UnixNano() / 1000)
		more = func() bool { return time.Now().Before(end) }
	}
	if value := os.Getenv("GIT_CHECKPOINT_FUZZ_SEED"); value != "" {
		seed, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		newDamaged(t, s, seed).test()
		return
	}
	var work sync.WaitGroup
	var cases atomic.Int64
	for range runtime.GOMAXPROCS(0) {
		work.Go(func() {
			for more() {
				newDamaged(t, s, last.Add(1)).test()
				cases.Add(1)
			}
		})
	}
	work.Wait()
	t.Logf("%d repositories damaged", cases.Load())
}

// specimen is the repository that copies are made of.
type specimen struct {
	root    string
	env     []string
	refs    map[string]string // all refs of ours
	objects []string          // all that they reach
	runs    []string
	notes   map[string][]string // the objects with a note, by run
}

const specimenPlan = `
name = "shop"
[[member]]
id = "m"
[[member]]
id = "judge"
[review]
member = "judge"
run = "true"
[[task]]
id = "a"
kind = "agent"
member = "m"
run = "echo a$CHECKPOINT_ATTEMPT >>a"
check = "test -f a"
produces = { a = "a" }
[[task]]
id = "b"
kind = "deterministic"
run = "echo b >b"
uses = ["a"]
`

// newSpecimen makes runs of every kind, with their objects and refs partly
// packed.
func newSpecimen(t *testing.T) *specimen {
	p := newRepository(t)
	for _, name := range []string{"GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE", "GIT_CHECKPOINT_DATE"} {
		p.env = append(p.env, name+"=2026-11-30T12:00:00Z")
	}
	git := func(line string) { t.Helper(); p.git(strings.Fields(line)...) }
	write := func(name, content string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(p.dir, name)), 0o777); err != nil {
			t.Fatal(err)
		}
		p.write(name, content)
	}
	git("init -q --bare ../remote.git")
	git("remote add origin ../remote.git")
	write("plan.toml", specimenPlan)
	write("dir/one", strings.Repeat("one\n", 300))
	git("add .")
	git("commit -q -m second")
	write("transcript", "{}\n")

	// A run that failed and went on, with staged changes; a fork of its fork.
	git("checkpoint start base --session s1")
	write("dir/two", "two")
	git("checkpoint save --step plan --kind agent --session s1 --turn t1 --artifact one=dir/one")
	git("add dir/two")
	write("dir/two", "more")
	git("checkpoint save --step implement --kind agent --session s1 --outcome failed")
	git("checkpoint save --step test --kind deterministic")
	git("checkpoint fork base --to plan --run fork")
	git("checkpoint fork fork --to plan --run forkfork")
	git("checkpoint end --status failed")

	// One that is pruned, though another stands on it.
	git("checkpoint save --run old --step plan")
	git("checkpoint fork old --to plan --run child")
	git("checkpoint end old --status completed")

	// A plan that was executed, and one of its tasks again.
	git("checkpoint run plan.toml --run shop")
	head := p.git("rev-parse", "checkpoint/shop")
	p.git("checkpoint", "rerun", "shop", "--task", "a", "--expected-head", head, "--max-steps", "9", "--max-invocations", "9", "--max-minutes", "9")
	git("config checkpoint.push.secrets off")
	git("checkpoint push")
	git("repack -q -d")
	git("pack-refs --all")

	// What is not packed: a rewind, operations to undo and redo, conflicts and flags.
	git("checkpoint rewind base --to implement --run again --fresh-session")
	git("checkpoint prune old")
	write("dir/two", "again")
	git("checkpoint save --step implement")
	git("checkpoint restore @plan")
	git("checkpoint undo")
	git("checkpoint restore @plan")
	git("checkpoint restore @{0}")
	git("checkpoint undo")
	blob := p.git("rev-parse", "HEAD:file")
	info := exec.Command("git", "update-index", "--index-info")
	info.Dir, info.Env = p.dir, p.env
	info.Stdin = strings.NewReader(fmt.Sprintf("0 %040d\tfile\n100644 %s 1\tfile\n100644 %s 2\tfile\n", 0, blob, blob))
	if out, err := info.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	git("update-index --assume-unchanged dir/one")
	git("checkpoint save --step conflict --kind agent")
	if t.Failed() {
		t.FailNow()
	}

	s := &specimen{root: filepath.Dir(p.dir), env: p.env, notes: map[string][]string{}}
	s.refs = ourRefs(p)
	// In an order that does not depend on what is random in their ids.
	listed := map[string]bool{}
	for _, ref := range slices.Sorted(maps.Keys(s.refs)) {
		for _, id := range strings.Fields(p.git("rev-list", "--objects", "--no-object-names", s.refs[ref])) {
			if !listed[id] {
				s.objects = append(s.objects, id)
			}
			listed[id] = true
		}
	}
	for _, ref := range slices.Sorted(maps.Keys(s.refs)) {
		run, ok := strings.CutPrefix(ref, "refs/notes/checkpoints/")
		if !ok {
			continue
		}
		s.runs = append(s.runs, run)
		for _, line := range strings.Split(p.git("notes", "--ref=checkpoints/"+run, "list"), "\n") {
			s.notes[run] = append(s.notes[run], strings.Fields(line)[1])
		}
	}
	for _, c := range append(slices.Clone(readers), "verify") {
		if out, err := p.run(append([]string{"checkpoint"}, strings.Fields(c)...)...); err != nil {
			t.Fatalf("on the undamaged repository: %v\n%s", err, out)
		}
	}
	return s
}

// ourRefs lists the refs of ours that git can read.
func ourRefs(p *place) map[string]string {
	refs := map[string]string{}
	out, _ := p.run("for-each-ref", "--format=%(refname) %(objectname)", "refs/checkpoints/", "refs/notes/checkpoints/")
	for _, line := range strings.Split(out, "\n") {
		if name, id, ok := strings.Cut(line, " "); ok {
			refs[name] = id
		}
	}
	return refs
}

// readers are the commands that change nothing.
var readers = []string{
	"list", "list --all --json", "list --children-of base", "log", "log base", "log fork --json", "log --graph", "show", "show base@plan -p",
	"show again@implement --json", "diff", "diff base@plan again", "status", "status --json", "status shop", "status shop --json", "rewind base --list",
	"prune --keep 1 --dry-run", "restore base@plan --dry-run", "rewind base --to plan --dry-run --fresh-session", "rerun shop --task a --preview", "config", "plan check plan.toml",
}

// writers are those that change something; after "<" what they read.
var writers = []string{
	"save -m message", "save --if-changed", "save --run fresh --step s --kind agent", "save --step plan", "restore base@plan", "restore @{1}", "restore @{0} --reset",
	"restore @plan -- dir", "restore --continue", "undo", "redo", "rewind base --to implement --run R --fresh-session", "rewind child --to plan --no-checkout",
	"fork base --to plan --run F", "fork forkfork --before plan", "start new", "end --status completed", "switch fork", "run plan.toml --run second --no-start", "resume shop",
	"next shop", "push", "pull", "prune --keep 3", "prune --older-than 1h --safety 1h", "hook git post-commit",
	`hook event <{"type":"session-start","session_id":"s1"}`, `hook event <{"type":"prompt","session_id":"s9","prompt":"do"}`,
	`hook event <{"type":"turn-end","session_id":"s1","turn_id":"t9"}`, `react <{"type":"TurnCompleted","thread_id":"s1","turn_id":"t7"}`,
}

// damaged is one copy of the specimen.
type damaged struct {
	*place
	s      *specimen
	seed   int64
	random *rand.Rand
	done   []damage
}

// damage tells what was done.
type damage struct {
	what   string
	names  []string // verify must name one of them, if it has to find the damage at all
	benign bool     // nothing that counts is damaged
	hides  bool     // what is there may not be found, and rightly
}

func (d damage) String() string { return d.what }

func newDamaged(t *testing.T, s *specimen, seed int64) *damaged {
	root, err := os.MkdirTemp("", "damaged-")
	if err != nil {
		t.Error(err)
		runtime.Goexit()
	}
	if out, err := exec.Command("cp", "-a", s.root+"/.", root).CombinedOutput(); err != nil {
		t.Errorf("copy: %v\n%s", err, out)
		runtime.Goexit()
	}
	return &damaged{place: &place{t, filepath.Join(root, "main"), s.env}, s: s, seed: seed, random: rand.New(rand.NewSource(seed))}
}

func (d *damaged) wrong(format string, args ...any) {
	d.t.Errorf("GIT_CHECKPOINT_FUZZ_SEED=%d: %v\n%s", d.seed, d.done, fmt.Sprintf(format, args...))
}

func (d *damaged) test() {
	root := filepath.Dir(d.dir)
	defer func() {
		exec.Command("chmod", "-R", "u+rwX", root).Run()
		os.RemoveAll(root)
	}()
	for range 1 + max(0, d.random.Intn(6)-3) {
		d.done = append(d.done, damages[d.random.Intn(len(damages))](d))
	}
	failed := ""
	read := func(line string) {
		before := d.state()
		code, out := d.command(line)
		if hidden := slices.ContainsFunc(d.done, func(done damage) bool { return done.hides }); code != 0 && code != 3 && !(code == 5 && hidden) { // a lock is no damage
			failed = fmt.Sprintf("%s: exit code %d\n%s", line, code, out)
		}
		if after := d.state(); !maps.Equal(before, after) {
			d.wrong("%s changed %s", line, difference(before, after))
		}
	}
	for range 4 {
		read(readers[d.random.Intn(len(readers))])
	}
	d.verify(failed)
	for range 4 {
		d.write(writers[d.random.Intn(len(writers))])
	}
	d.command("verify --json")
}

// verify checks that verify finds what there is to find.
func (d *damaged) verify(failed string) {
	before := d.state()
	code, out := d.command("verify")
	if after := d.state(); !maps.Equal(before, after) {
		d.wrong("verify changed %s", difference(before, after))
	}
	lost := d.lost()
	switch {
	case code == 0 && failed != "":
		d.wrong("verify finds nothing, but there is\n%s", failed)
	case code == 0 && len(lost) > 0:
		d.wrong("verify finds nothing, but lost are %v", lost)
	case code != 0 && len(d.done) == 1 && d.done[0].benign:
		d.wrong("verify complains of what is sound:\n%s", out)
	case code != 0 && len(d.done) == 1 && !slices.ContainsFunc(d.done[0].names, func(name string) bool { return strings.Contains(out, name) }):
		d.wrong("verify does not name any of %.5q:\n%s", d.done[0].names, out)
	case code != 0 && code != 1:
		// Only where git itself does not work.
		_, opens := d.run("rev-parse", "--is-shallow-repository", "--show-toplevel")
		_, lists := d.run("for-each-ref")
		if opens == nil && lists == nil {
			d.wrong("verify ends with %d:\n%s", code, out)
		}
	}
}

// write runs a command that may change something. It loses nothing.
func (d *damaged) write(line string) {
	before, refs := d.files("objects"), ourRefs(d.place)
	code, out := d.command(line)
	after := d.files("objects")
	for file, sum := range before {
		if now, ok := after[file]; !ok || now != sum {
			d.wrong("%s: exit code %d: lost or changed the object file %s\n%s", line, code, file, out)
		}
	}
	if code == 0 || strings.HasPrefix(line, "prune") {
		return
	}
	now := ourRefs(d.place)
	for ref := range refs {
		// A finished operation may be settled by any command.
		if now[ref] == "" && !strings.HasPrefix(ref, "refs/checkpoints/local/") {
			d.wrong("%s: exit code %d: lost the ref %s\n%s", line, code, ref, out)
		}
	}
}

var exitCodes = []int{0, 1, 3, 4, 5, 75, 128, 129}

// command runs a command of ours and checks how it ends.
func (d *damaged) command(line string) (code int, out string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	line, input, _ := strings.Cut(line, "<")
	cmd := exec.CommandContext(ctx, "git-checkpoint", strings.Fields(line)...)
	var stdout, stderr strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = d.dir, d.env, strings.NewReader(input), &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Run()
	if ctx.Err() != nil {
		d.wrong("%s hangs", line)
	}
	code = cmd.ProcessState.ExitCode()
	out = stdout.String() + stderr.String()
	errorLines, hints := 0, 0
	for l := range strings.Lines(stderr.String()) {
		switch {
		case strings.HasPrefix(l, "error: "):
			errorLines++
		case strings.HasPrefix(l, "hint: "), strings.HasPrefix(l, `{"error":`) && !strings.Contains(l, `"hint":""`):
			hints++
		case strings.HasPrefix(l, "warning: "), strings.HasPrefix(l, `{"error":`):
		default:
			d.wrong("%s says what is no error, warning or hint:\n%s", line, out)
			return code, out
		}
	}
	switch {
	case !slices.Contains(exitCodes, code):
		d.wrong("%s: exit code %d (%v)\n%s", line, code, err, out)
	case strings.Contains(out, "internal error") || strings.Contains(out, "goroutine ") || strings.Contains(out, "panic"):
		d.wrong("%s panics:\n%s", line, out)
	case errorLines > 1 && !strings.HasPrefix(line, "plan "):
		d.wrong("%s has %d errors:\n%s", line, errorLines, out)
	case code != 0 && hints == 0 && !(code == 1 && strings.HasPrefix(line, "verify")):
		d.wrong("%s: exit code %d without a hint:\n%s", line, code, out)
	}
	return code, out
}

// lost lists the objects of the specimen that git cannot read any more, though
// a ref that it can read reaches them.
func (d *damaged) lost() []string {
	var tips []string
	for ref, id := range d.s.refs {
		if now, _ := d.run("rev-parse", "--verify", "--quiet", ref); now == id {
			tips = append(tips, id)
		}
	}
	if len(tips) == 0 {
		return nil
	}
	// What git can still walk to is reached.
	reached := map[string]bool{}
	cmd := exec.Command("git", append([]string{"rev-list", "--objects", "--no-object-names", "--missing=print"}, tips...)...)
	cmd.Dir, cmd.Env = d.dir, d.env
	listed, _ := cmd.Output()
	for _, id := range strings.Fields(string(listed)) {
		reached[strings.TrimPrefix(id, "?")] = true
	}
	var lost []string
	for rest := d.s.objects; len(rest) > 0; {
		sound := d.sound(rest)
		if sound < len(rest) {
			if reached[rest[sound]] {
				lost = append(lost, rest[sound])
			}
			sound++
		}
		rest = rest[sound:]
	}
	return lost
}

// sound returns how many of the objects, from the first, git reads as what
// their ids say.
func (d *damaged) sound(ids []string) int {
	cmd := exec.Command("git", "cat-file", "--batch")
	cmd.Dir, cmd.Env, cmd.Stdin = d.dir, d.env, strings.NewReader(strings.Join(ids, "\n")+"\n")
	out, _ := cmd.Output()
	for i, id := range ids {
		header, rest, _ := bytes.Cut(out, []byte("\n"))
		fields := strings.Fields(string(header))
		if len(fields) != 3 {
			return i
		}
		size, err := strconv.Atoi(fields[2])
		if err != nil || len(rest) < size+1 {
			return i
		}
		sum := sha1.Sum(append([]byte(fields[1]+" "+fields[2]+"\x00"), rest[:size]...))
		if hex.EncodeToString(sum[:]) != id {
			return i
		}
		out = rest[size+1:]
	}
	return len(ids)
}

// state is everything that a command that reads must leave alone.
func (d *damaged) state() map[string]string {
	all := d.files("objects")
	maps.Copy(all, d.files("refs"))
	// What a dead command left of its own may be put in order by any command.
	maps.DeleteFunc(all, func(file, _ string) bool { return strings.Contains(file, "/refs/checkpoints/local/") })
	for _, name := range []string{"HEAD", "packed-refs", "CHECKPOINT_HEAD", "index", "config"} {
		data, _ := os.ReadFile(filepath.Join(d.dir, ".git", name))
		all[name] = string(data)
	}
	return all
}

// files reads what is below a directory of the git directory.
func (d *damaged) files(below string) map[string]string {
	files := map[string]string{}
	filepath.WalkDir(filepath.Join(d.dir, ".git", below), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil
		}
		data, err := os.ReadFile(path)
		files[path] = fmt.Sprint(string(data), err)
		return nil
	})
	return files
}

func difference(before, after map[string]string) string {
	var names []string
	for name, content := range before {
		if now, ok := after[name]; !ok || now != content {
			names = append(names, name)
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			names = append(names, "+"+name)
		}
	}
	return strings.Join(names, " ")
}
