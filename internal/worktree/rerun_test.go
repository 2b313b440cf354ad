//go:build unix

package worktree_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/git-checkpoint/git-checkpoint/internal/lock"
	"github.com/git-checkpoint/git-checkpoint/rerun"
)

const rerunPlan = `name = "plan"
verify = "true"

[[task]]
id = "a"
kind = "deterministic"
run = "echo a >a; echo '{\"handover\":\"from a\"}' >$CHECKPOINT_RESULT"

[[task]]
id = "b"
kind = "deterministic"
run = "echo b >b"
after = ["a"]

[[task]]
id = "c"
kind = "deterministic"
run = "echo c >c"
knows = ["a"]
`

// finished returns a repository with the finished run 'src' of that plan.
func finished(t *testing.T) sandbox {
	t.Helper()
	s := sandbox{t, filepath.Join(t.TempDir(), "repo")}
	if err := os.Mkdir(s.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	s.git("init", "-q", "-b", "main")
	s.git("config", "checkpoint.worktreeDir", filepath.Join(t.TempDir(), "trees"))
	s.git("config", "user.name", "A")
	s.git("config", "user.email", "a@example.com")
	s.git("commit", "-q", "--allow-empty", "-m", "first")
	plan := filepath.Join(t.TempDir(), "plan.toml")
	if err := os.WriteFile(plan, []byte(rerunPlan), 0o666); err != nil {
		t.Fatal(err)
	}
	s.checkpoint("run", plan, "--run", "src")
	return s
}

// request is a rerun of tasks of 'src', as a command line and as what its
// digest is of.
func (s sandbox) request(tasks ...string) (args []string, q rerun.Request) {
	s.Helper()
	q = rerun.Request{
		ExpectedHead: strings.TrimSpace(s.git("rev-parse", "checkpoint/src")), TaskIDs: tasks,
		Budget: rerun.Budget{MaxSteps: 8, MaxInvocations: 9, MaxMinutes: 5},
	}
	args = []string{"rerun", "src", "--json", "--expected-head", q.ExpectedHead, "--max-steps", "8", "--max-invocations", "9", "--max-minutes", "5"}
	for _, task := range tasks {
		args = append(args, "--task", task)
	}
	return args, q
}

func childID(t *testing.T, answer string) string {
	t.Helper()
	var a struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &a); err != nil || a.ID == "" {
		t.Fatalf("the answer is %q: %v", answer, err)
	}
	return a.ID
}

// children are the reruns of 'src'.
func (s sandbox) children() []string {
	s.Helper()
	var list []string
	for line := range strings.Lines(s.checkpoint("list", "--children-of", "src", "--json")) {
		var r struct{ Run string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			s.Fatal(err)
		}
		list = append(list, r.Run)
	}
	return list
}

func (s sandbox) refs(patterns ...string) string {
	s.Helper()
	return s.git(append([]string{"for-each-ref", "--format=%(refname) %(objectname)"}, patterns...)...)
}

func (s sandbox) sourceRefs() string {
	s.Helper()
	return s.refs("refs/heads/checkpoint/src", "refs/checkpoints/runs/src", "refs/checkpoints/seeds/src", "refs/notes/checkpoints/src")
}

// whole fails unless there are exactly so many children, each of them can be
// executed, nothing is left of others, and the source is as it was.
func (s sandbox) whole(want int, source string) {
	s.Helper()
	list := s.children()
	if len(list) != want {
		s.Errorf("there are %d children, want %d", len(list), want)
	}
	for _, prefix := range []string{"refs/heads/checkpoint/", "refs/checkpoints/seeds/", "refs/notes/checkpoints/"} {
		for line := range strings.Lines(s.refs(prefix)) {
			name, _, _ := strings.Cut(strings.TrimPrefix(line, prefix), " ")
			if name != "src" && !slices.Contains(list, name) {
				s.Errorf("'%s%s' is of no run", prefix, name)
			}
		}
	}
	for _, child := range list {
		if out := s.checkpoint("resume", child, "--json"); !strings.Contains(out, `"status":"completed"`) {
			s.Errorf("child '%s': %s", child, out)
		}
	}
	if now := s.sourceRefs(); now != source {
		s.Errorf("the source's refs changed:\n%swere\n%s", now, source)
	}
	s.checkpoint("verify")
	s.fsck()
}

// TestKilledRerun kills the creation of a rerun at each of its durable steps.
// The next call finds a whole child or none, and makes its own.
func TestKilledRerun(t *testing.T) { // S3.31, S3.42
	t.Parallel()
	s := finished(t)
	args, _ := s.request("b")
	source := s.sourceRefs()
	all, _ := s.clone().steps(-1, args...)
	t.Logf("%d steps", len(all))
	for _, n := range spread(len(all), 8) {
		t.Run(strings.ReplaceAll(all[n-1], " ", "-"), func(t *testing.T) {
			at := sandbox{t, s.dir}.clone()
			if _, dead := at.steps(n, args...); !dead {
				t.Fatal("it was not killed")
			}
			before := at.children()
			if len(before) > 1 {
				t.Fatalf("there are children %q", before)
			}
			id := childID(t, at.checkpoint(args...))
			if slices.Contains(before, id) {
				t.Errorf("a later request was answered with the child '%s' of an earlier one", id)
			}
			at.whole(len(before)+1, source)
		})
	}
}

// TestTornRerun stops the creation of a rerun between its refs, as a crash of
// the machine may: what has no run is no run, and goes away, branch and all.
func TestTornRerun(t *testing.T) { // S3.31
	t.Parallel()
	s := finished(t)
	args, _ := s.request("b")
	source := s.sourceRefs()
	all, _ := s.clone().steps(-1, args...)
	written := slices.IndexFunc(all, func(step string) bool { return strings.Contains(step, "change of refs written down") })
	at := s.clone()
	at.steps(written+1, args...)
	var pending struct {
		Updates []struct{ Ref, New string }
	}
	data, err := os.ReadFile(filepath.Join(at.dir, ".git", "checkpoint", "transaction"))
	if err == nil {
		err = json.Unmarshal(data, &pending)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range []string{"refs/notes/", "refs/checkpoints/seeds/", "refs/heads/", "refs/checkpoints/runs/"} {
		if len(pending.Updates) != 4 || !strings.HasPrefix(pending.Updates[i].Ref, part) {
			t.Fatalf("it was to write %+v", pending.Updates)
		}
	}
	for torn := range pending.Updates {
		t.Run(fmt.Sprintf("after-%d-refs", torn), func(t *testing.T) {
			at := sandbox{t, at.dir}.clone()
			for _, u := range pending.Updates[:torn] {
				at.git("update-ref", u.Ref, u.New)
			}
			at.checkpoint(args...)
			at.whole(1, source)
		})
	}
	t.Run("after-all-refs", func(t *testing.T) {
		at := sandbox{t, at.dir}.clone()
		for _, u := range pending.Updates {
			at.git("update-ref", u.Ref, u.New)
		}
		at.checkpoint(args...)
		at.whole(2, source)
	})
	t.Run("a branch of that name that somebody else made", func(t *testing.T) {
		at := sandbox{t, at.dir}.clone()
		u := pending.Updates[2]
		at.git("update-ref", u.Ref, u.New)
		at.checkpoint(args...)
		if at.refs(u.Ref) == "" {
			t.Error("it is gone")
		}
	})
}

// TestTamperedSeed changes what pins a rerun. Nothing is run then.
func TestTamperedSeed(t *testing.T) { // S3.31, S3.32, S3.33
	t.Parallel()
	s := finished(t)
	args, _ := s.request("b")
	child := childID(t, s.checkpoint(args...))
	seedRef := "refs/checkpoints/seeds/" + child
	text := s.git("show", seedRef+":seed.json")
	edit := func(change func(*rerun.Seed)) string {
		seed, err := rerun.DecodeSeed([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		change(seed)
		return string(seed.Encode())
	}
	first := strings.TrimSpace(s.git("rev-parse", "main"))
	var seed rerun.Seed
	if err := json.Unmarshal([]byte(text), &seed); err != nil {
		t.Fatal(err)
	}
	other := seed.Retained[1].Commit
	swapped := func(seed *rerun.Seed) { seed.Retained[0].Commit = other }
	for name, c := range map[string]struct {
		files   map[string]string // path in the seed's tree → content; "" removes it
		journal func(note string) string
		code    string
	}{
		"a byte of the seed":                 {files: map[string]string{"seed.json": strings.Replace(text, `"maxMinutes":5`, `"maxMinutes":6`, 1)}},
		"the retained commit":                {files: map[string]string{"seed.json": strings.Replace(text, `"commit":"`+seed.Retained[0].Commit, `"commit":"`+first, 1)}},
		"another layout":                     {files: map[string]string{"seed.json": text + "\n"}},
		"no seed":                            {files: map[string]string{"seed.json": ""}, code: "no-seed"},
		"a retained commit and the checksum": {files: map[string]string{"seed.json": edit(swapped)}},
		"the budget and the checksum":        {files: map[string]string{"seed.json": edit(func(s *rerun.Seed) { s.Budget.MaxMinutes = 720 })}},
		"the selection and the checksum": {files: map[string]string{"seed.json": edit(func(s *rerun.Seed) {
			s.Selected = []string{"a", "b"}
		})}},
		"instructions and the checksum": {files: map[string]string{"seed.json": edit(func(s *rerun.Seed) {
			s.Instructions = map[string]string{"b": "rm -rf /"}
		})}},
		"the plan":             {files: map[string]string{"plan.toml": strings.Replace(rerunPlan, "echo b >b", "touch evil", 1)}, code: "plan-changed"},
		"what was handed over": {files: map[string]string{"handovers/a": "delete everything"}},
		"a handover more":      {files: map[string]string{"handovers/b": "delete everything"}},
		"no handovers":         {files: map[string]string{"handovers/a": ""}},
		"a retained commit, the checksum, and the journal's": {
			files: map[string]string{"seed.json": edit(swapped)},
			journal: func(note string) string {
				return strings.ReplaceAll(note, seed.SHA256, sumOf(t, edit(swapped)))
			},
		},
		"a retained commit, the checksum, and a line more in the journal": {
			files: map[string]string{"seed.json": edit(swapped)},
			journal: func(note string) string {
				for line := range strings.Lines(note) {
					if strings.Contains(line, `"event":"seeded"`) {
						line = strings.ReplaceAll(line, seed.SHA256, sumOf(t, edit(swapped)))
						return note + `{"id":"7ZZZZZZZZZZZZZZZZZZZZZZZZZ"` + line[strings.Index(line, `,"at"`):]
					}
				}
				t.Fatal("the journal has no seed")
				return ""
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			at := sandbox{t, s.dir}.clone()
			at.rewrite(seedRef, c.files)
			if c.journal != nil {
				start := strings.TrimSpace(at.git("rev-parse", "refs/checkpoints/runs/"+child))
				file := filepath.Join(t.TempDir(), "note")
				note := c.journal(at.git("notes", "--ref=checkpoints/"+child, "show", start))
				if err := os.WriteFile(file, []byte(note), 0o666); err != nil {
					t.Fatal(err)
				}
				at.git("notes", "--ref=checkpoints/"+child, "add", "-f", "-F", file, start)
			}
			code := c.code
			if code == "" {
				code = "seed-damaged"
			}
			before := at.refs()
			for _, command := range [][]string{{"resume", child, "--json"}, {"next", child, "--json"}} {
				stdout, stderr, exit := at.try(command...)
				if exit != 4 || !strings.Contains(stderr, `"code":"`+code+`"`) || stdout != "" {
					t.Errorf("git checkpoint %s: exit code %d, want 4 and %s\n%s%s", command, exit, code, stdout, stderr)
				}
			}
			if now := at.refs(); now != before {
				t.Errorf("something was done:\n%swas\n%s", now, before)
			}
			if out, _, exit := at.try("verify", "--json"); exit != 1 || !strings.Contains(out, `"code":"`+code+`"`) {
				t.Errorf("git checkpoint verify: exit code %d\n%s", exit, out)
			}
		})
	}
}

func sumOf(t *testing.T, seed string) string {
	t.Helper()
	s, err := rerun.DecodeSeed([]byte(seed))
	if err != nil {
		t.Fatal(err)
	}
	return s.SHA256
}

// rewrite makes a ref hold a commit with other files.
func (s sandbox) rewrite(ref string, files map[string]string) {
	s.Helper()
	index := filepath.Join(s.TempDir(), "index")
	run := func(stdin string, args ...string) string {
		cmd, stdout, stderr := s.command("git", args...)
		cmd.Env = append(slices.Clone(environment), "GIT_INDEX_FILE="+index)
		cmd.Stdin = strings.NewReader(stdin)
		if err := cmd.Run(); err != nil {
			s.Fatalf("git %s: %v\n%s", args, err, stderr)
		}
		return strings.TrimSpace(stdout.String())
	}
	run("", "read-tree", ref)
	for path, content := range files {
		if content == "" {
			run("", "rm", "-q", "--cached", "--", path)
			continue
		}
		run("", "update-index", "--add", "--cacheinfo", "100644,"+run(content, "hash-object", "-w", "--stdin")+","+path)
	}
	run("", "update-ref", ref, run("", "commit-tree", "-m", "seed", run("", "write-tree")))
}

// asker is a git checkpoint that asks for a rerun.
type asker struct {
	*exec.Cmd
	stdout bytes.Buffer
	stderr lines
}

// lines collects output, and tells of a line that was waited for.
type lines struct {
	text bytes.Buffer
	seen chan struct{}
}

const waits = "wait for the same rerun"

func (l *lines) Write(p []byte) (int, error) {
	before := strings.Contains(l.text.String(), waits)
	l.text.Write(p)
	if !before && strings.Contains(l.text.String(), waits) {
		close(l.seen)
	}
	return len(p), nil
}

func (s sandbox) begin(args []string) *asker {
	s.Helper()
	cmd, _, _ := s.checkpointCommand(args...)
	a := &asker{Cmd: cmd, stderr: lines{seen: make(chan struct{})}}
	cmd.Env = append(slices.Clone(environment), "GIT_CHECKPOINT_TRACE=1")
	cmd.Stdout, cmd.Stderr = &a.stdout, &a.stderr
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	return a
}

// TestFiftyAskForOneRerun lets fifty processes with the same request arrive
// before its child is made: they share one. Another request meanwhile is a
// conflict, and the same one later makes another child.
func TestFiftyAskForOneRerun(t *testing.T) { // S3.40, S3.41, S3.42
	t.Parallel()
	s := finished(t)
	args, q := s.request("b")
	source := s.sourceRefs()
	gate, err := lock.Acquire(t.Context(), filepath.Join(s.dir, ".git", "checkpoint", "rerun", "src"), "rerun "+q.Digest(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Release()
	var askers []*asker
	for range 50 {
		askers = append(askers, s.begin(args))
	}
	for i, a := range askers {
		select {
		case <-a.stderr.seen:
		case <-time.After(time.Minute):
			t.Fatalf("asker %d does not wait", i)
		}
	}
	other, _ := s.request("c")
	if _, stderr, exit := s.try(other...); exit != 3 || !strings.Contains(stderr, `"code":"rerun-overlaps"`) {
		t.Errorf("another request: exit code %d, %s", exit, stderr)
	}
	if list := s.children(); len(list) != 0 {
		t.Errorf("there are children %q before there can be", list)
	}
	gate.Release()
	ids := map[string]int{}
	for i, a := range askers {
		if err := a.Wait(); err != nil {
			t.Fatalf("asker %d: %v\n%s", i, err, &a.stderr.text)
		}
		ids[childID(t, a.stdout.String())]++
	}
	if len(ids) != 1 {
		t.Errorf("they were answered with %v", ids)
	}
	again := childID(t, s.checkpoint(args...))
	if ids[again] != 0 {
		t.Errorf("a later request was answered with the child '%s' of an earlier one", again)
	}
	s.whole(2, source)
}

// TestTwoRerunsAtOnce lets two different requests arrive before either's
// child is made: one is a conflict.
func TestTwoRerunsAtOnce(t *testing.T) { // S3.40
	t.Parallel()
	s := finished(t)
	one, q := s.request("b")
	two, r := s.request("c")
	source := s.sourceRefs()
	// Held by both, so that both wait.
	gate, err := lock.Acquire(t.Context(), filepath.Join(s.dir, ".git", "checkpoint", "rerun", "src"), "rerun "+q.Digest()+" "+r.Digest(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Release()
	askers := []*asker{s.begin(one), s.begin(two)}
	for i, a := range askers {
		select {
		case <-a.stderr.seen:
		case <-time.After(time.Minute):
			t.Fatalf("asker %d does not wait", i)
		}
	}
	gate.Release()
	made, refused := 0, 0
	for _, a := range askers {
		a.Wait()
		switch {
		case a.ProcessState.ExitCode() == 0:
			made++
		case a.ProcessState.ExitCode() == 3 && strings.Contains(a.stderr.text.String(), `"code":"rerun-overlaps"`):
			refused++
		default:
			t.Errorf("exit code %d\n%s", a.ProcessState.ExitCode(), &a.stderr.text)
		}
	}
	if made != 1 || refused != 1 {
		t.Errorf("%d were made and %d refused", made, refused)
	}
	s.whole(1, source)
}

// TestRerunMadeMeanwhile lets a request arrive, and another one's child be
// made before its turn comes: what it looked at is not all there is any more.
func TestRerunMadeMeanwhile(t *testing.T) { // S3.40
	t.Parallel()
	s := finished(t)
	one, _ := s.request("b")
	two, q := s.request("c")
	source := s.sourceRefs()
	elsewhere := s.clone()
	gate, err := lock.Acquire(t.Context(), filepath.Join(s.dir, ".git", "checkpoint", "rerun", "src"), "rerun "+q.Digest(), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Release()
	late := s.begin(two)
	select {
	case <-late.stderr.seen:
	case <-time.After(time.Minute):
		t.Fatal("it does not wait")
	}
	child := childID(t, elsewhere.checkpoint(one...))
	for _, ref := range []string{"refs/notes/checkpoints/", "refs/checkpoints/seeds/", "refs/heads/checkpoint/", "refs/checkpoints/runs/"} {
		s.git("fetch", "-q", elsewhere.dir, ref+child+":"+ref+child)
	}
	gate.Release()
	late.Wait()
	if code := late.ProcessState.ExitCode(); code != 3 || !strings.Contains(late.stderr.text.String(), `"code":"rerun-overlaps"`) {
		t.Errorf("exit code %d\n%s", code, &late.stderr.text)
	}
	s.whole(1, source)
}
