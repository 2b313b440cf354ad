//go:build unix

package share_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// binary builds the program once for all tests.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "checkpoint-test-")
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "build", "-o", dir, "../../cmd/git-checkpoint", "../../cmd/git-checkpoint-secrets").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := binary(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// clone is a repository that somebody works in, with the real program.
type clone struct {
	*testing.T
	dir string
	env []string
}

func environment(t *testing.T, root string) []string {
	t.Helper()
	dir, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return []string{
		"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + root, "LC_ALL=C", "TZ=UTC", "TMPDIR=" + os.TempDir(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull, "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com",
	}
}

func (c clone) try(env []string, args ...string) (stdout, stderr string, code int) {
	c.Helper()
	cmd := exec.Command("git", args...)
	var out, errs bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.dir, append(slices.Clone(c.env), env...), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

func (c clone) git(args ...string) string {
	c.Helper()
	out, errs, code := c.try(nil, args...)
	if code != 0 {
		c.Fatalf("%s: git %s: exit code %d\n%s%s", filepath.Base(c.dir), strings.Join(args, " "), code, out, errs)
	}
	return strings.TrimSpace(out)
}

// may runs git checkpoint, which may be refused as a conflict or for nothing
// to work on, but not fail otherwise.
func (c clone) may(args ...string) (string, bool) {
	c.Helper()
	out, errs, code := c.try(nil, append([]string{"checkpoint"}, args...)...)
	if code != 0 && code != 3 && code != 5 {
		c.Fatalf("%s: git checkpoint %s: exit code %d\n%s%s", filepath.Base(c.dir), strings.Join(args, " "), code, out, errs)
	}
	return out, code == 0
}

// refs are all refs below some prefixes.
func (c clone) refs(prefixes ...string) map[string]string {
	c.Helper()
	refs := map[string]string{}
	for line := range strings.Lines(c.git(append([]string{"for-each-ref", "--format=%(objectname) %(refname)"}, prefixes...)...)) {
		id, ref, _ := strings.Cut(strings.TrimSpace(line), " ")
		refs[ref] = id
	}
	return refs
}

const runPrefix = "refs/checkpoints/runs/"

func (c clone) shared() map[string]string {
	return c.refs(runPrefix, "refs/notes/checkpoints", "refs/checkpoints/seeds", "refs/checkpoints/pruned")
}

// pruned are the names on the list of pruned runs.
func (c clone) pruned() map[string]bool {
	names := map[string]bool{}
	out, _, _ := c.try(nil, "cat-file", "-p", "refs/checkpoints/pruned:pruned")
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, " ")
		names[name] = true
	}
	return names
}

type runInfo struct {
	Run     string          `json:"run"`
	Tip     string          `json:"tip"`
	Lineage json.RawMessage `json:"lineage"`
}

func (c clone) runs() map[string]runInfo {
	c.Helper()
	runs := map[string]runInfo{}
	for line := range strings.Lines(c.git("checkpoint", "list", "--all", "--json")) {
		var r runInfo
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			c.Fatal(err)
		}
		runs[r.Run] = r
	}
	return runs
}

func (c clone) copyTo(name string) clone {
	c.Helper()
	to := filepath.Join(filepath.Dir(c.dir), name)
	if out, err := exec.Command("cp", "-r", c.dir, to).CombinedOutput(); err != nil {
		c.Fatalf("copy: %v\n%s", err, out)
	}
	return clone{c.T, to, c.env}
}

// team is a remote and those who share by it.
type team struct {
	*testing.T
	*rand.Rand
	root   string
	remote clone
	clones []clone
	saved  map[string]bool // checkpoints that must not be lost
	n      int
	log    []string
}

func newTeam(t *testing.T, seed int64) *team {
	root := t.TempDir()
	env := environment(t, root)
	tm := &team{T: t, Rand: rand.New(rand.NewSource(seed)), root: root, saved: map[string]bool{}}
	tm.remote = clone{t, filepath.Join(root, "remote.git"), env}
	first := clone{t, filepath.Join(root, "c0"), env}
	for _, dir := range []string{tm.remote.dir, first.dir} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	tm.remote.git("init", "-q", "--bare", "-b", "main")
	first.git("init", "-q", "-b", "main")
	first.git("remote", "add", "origin", "../remote.git")
	first.git("commit", "-q", "--allow-empty", "-m", "first")
	first.git("push", "-q", "-u", "origin", "main")
	second := clone{t, filepath.Join(root, "c1"), env}
	first.git("clone", "-q", tm.remote.dir, second.dir)
	tm.clones = []clone{first, second}
	return tm
}

func (t *team) pick(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[t.Intn(len(list))]
}

// step does one random thing in one random clone.
func (t *team) step() {
	t.Helper()
	i := t.Intn(len(t.clones))
	c := t.clones[i]
	what := t.pick([]string{"save", "save", "save", "save", "rewind", "fork", "prune", "push", "push", "pull", "pull", "copy", "end", "undo", "switch"})
	names := slices.Sorted(maps.Keys(c.runs()))
	t.log = append(t.log, fmt.Sprintf("c%d: %s", i, what))
	switch what {
	case "save":
		t.n++
		if err := os.WriteFile(filepath.Join(c.dir, t.pick([]string{"a", "b"})), fmt.Appendf(nil, "%d\n", t.n), 0o666); err != nil {
			t.Fatal(err)
		}
		args := []string{"save", "--json", "--step", t.pick([]string{"plan", "work", "check"})}
		if t.Intn(3) == 0 {
			args = append(args, "--run", t.pick([]string{"alpha", "beta"}))
		}
		if out, ok := c.may(args...); ok {
			var saved struct {
				Saved      bool
				Checkpoint string
			}
			if err := json.Unmarshal([]byte(out), &saved); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.saved[saved.Checkpoint] = true
		}
	case "rewind":
		c.may("rewind", "--to", t.pick([]string{"plan", "work"}), "--fresh-session")
	case "fork":
		if run := t.pick(names); run != "" {
			c.may("fork", run, "--to", t.pick([]string{"plan", "work"}), "--fresh-session")
		}
	case "switch":
		if run := t.pick(names); run != "" {
			c.may("switch", run)
		}
	case "undo":
		c.may("undo")
	case "end":
		c.may("end", "--status", "completed")
	case "prune":
		run := t.pick(names)
		if run == "" || t.Intn(2) == 0 {
			return
		}
		gone := strings.Fields(c.git("rev-list", "--first-parent", runPrefix+run))
		c.may("prune", run)
		if c.refs(runPrefix + run)[runPrefix+run] == "" {
			for _, id := range gone {
				delete(t.saved, id)
			}
		}
	case "push":
		c.may("push", "--timeout", "120", "--secrets", "off")
	case "pull":
		c.may("pull", "--timeout", "120")
	case "copy":
		if len(t.clones) < 4 {
			t.clones = append(t.clones, c.copyTo(fmt.Sprintf("c%d", len(t.clones))))
		}
	}
}

// exchange lets all push and pull until nothing moves.
func (t *team) exchange() {
	t.Helper()
	for range 8 {
		before := t.everything()
		for _, i := range t.Perm(len(t.clones)) {
			t.clones[i].git("checkpoint", "push", "--secrets", "off")
		}
		for _, i := range t.Perm(len(t.clones)) {
			t.clones[i].git("checkpoint", "pull")
		}
		if maps.Equal(before, t.everything()) {
			return
		}
	}
	t.Fatalf("after 8 rounds there is still something to exchange")
}

func (t *team) everything() map[string]string {
	all := map[string]string{}
	for _, c := range append(slices.Clone(t.clones), t.remote) {
		for ref, id := range c.shared() {
			all[c.dir+" "+ref] = id
		}
	}
	return all
}

// settled checks that all hold the same, and nothing is lost.
func (t *team) settled() {
	t.Helper()
	remote := t.remote.shared()
	pruned := t.clones[0].pruned()
	lineages := map[string]string{}
	for i, c := range t.clones {
		shared := c.shared()
		if !maps.Equal(pruned, c.pruned()) {
			t.Errorf("c%d has another list of pruned runs", i)
		}
		for ref, id := range remote {
			run := ref[strings.LastIndexByte(ref, '/')+1:]
			if shared[ref] != id && !(shared[ref] == "" && pruned[run]) {
				t.Errorf("c%d: %s is %.12q, the remote's is %.12s", i, ref, shared[ref], id)
			}
		}
		for ref := range shared {
			if run := ref[strings.LastIndexByte(ref, '/')+1:]; remote[ref] == "" && !pruned[run] {
				t.Errorf("c%d: %s never came to the remote", i, ref)
			}
		}
		for run, r := range c.runs() {
			if other, ok := lineages[run]; ok && other != string(r.Lineage) {
				t.Errorf("c%d: the lineage of %s is %s, elsewhere %s", i, run, r.Lineage, other)
			}
			lineages[run] = string(r.Lineage)
		}
		c.git("fsck", "--strict", "--no-dangling", "--no-progress")
		if out, errs, code := c.try(nil, "checkpoint", "verify"); code != 0 {
			t.Errorf("c%d: verify: exit code %d\n%s%s", i, code, out, errs)
		}
	}
	t.remote.git("fsck", "--strict", "--no-dangling", "--no-progress")
	kept := map[string]bool{}
	for _, c := range append(slices.Clone(t.clones), t.remote) {
		for id := range strings.Lines(c.git("rev-list", "--glob="+runPrefix+"*")) {
			kept[strings.TrimSpace(id)] = true
		}
	}
	for id := range t.saved {
		if !kept[id] {
			t.Errorf("checkpoint %s was saved, and is in no run any more", id)
		}
	}
}

// teams is how many random histories are tried: more with
// GIT_CHECKPOINT_ROUNDS.
func teams() int {
	if n, err := strconv.Atoi(os.Getenv("GIT_CHECKPOINT_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 1
}

// N.5: clones, some of them copies, that work without knowing of each other
// end equal when all have exchanged, whatever the order.
func TestClonesEndEqual(t *testing.T) {
	t.Parallel()
	for seed := range teams() {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			team := newTeam(t, int64(seed))
			for range 45 {
				team.step()
			}
			team.exchange()
			team.settled()
			if t.Failed() {
				t.Log(strings.Join(team.log, "\n"))
			}
		})
	}
}

// A pull that is killed between any two of its steps is finished by the next
// one: nothing is lost, and whoever worked on a run that diverged works on.
func TestKilledPull(t *testing.T) {
	t.Parallel()
	_, one, two := pair(t, servers[0])
	one.save("r", "work", "one")
	one.git("checkpoint", "push", "--secrets", "off")
	two.save("r", "work", "two")
	tip := two.git("rev-parse", runPrefix+"r")
	fork := runPrefix + "r." + tip[:12]
	killed := 0
	for n := 1; ; n++ {
		at := two.copyTo(fmt.Sprintf("killed-%d", n))
		_, _, code := at.try([]string{"GIT_CHECKPOINT_KILL=" + strconv.Itoa(n)}, "checkpoint", "pull")
		if code == 0 {
			break
		}
		killed++
		if held := at.git("rev-list", "--glob="+runPrefix+"*"); !strings.Contains(held, tip) {
			t.Errorf("killed at %d: no run has the checkpoint", n)
		}
		at.git("checkpoint", "pull")
		if run := at.git("symbolic-ref", "CHECKPOINT_HEAD"); run != fork {
			t.Errorf("killed at %d: the current run is %s, not %s", n, run, fork)
		}
		if got := at.shared()[runPrefix+"r"]; got != one.shared()[runPrefix+"r"] {
			t.Errorf("killed at %d: r is %s", n, got)
		}
		at.git("checkpoint", "verify")
		os.RemoveAll(at.dir)
	}
	if killed < 5 {
		t.Errorf("it was killed at %d steps only", killed)
	}
}

// Two clones with unrelated runs of one name and a seed each: the seed of the
// one that loses the name goes with its run.
func TestSeedsFollowTheirRuns(t *testing.T) {
	t.Parallel()
	remote, one, _ := pair(t, servers[0])
	three := clone{t, filepath.Join(filepath.Dir(one.dir), "three"), one.env}
	one.git("clone", "-q", remote.dir, three.dir)
	three.save("r", "plan", "three")
	seeds := map[string]string{}
	for name, c := range map[string]clone{"one": one, "three": three} {
		// A plan alone, as of a run that is no rerun.
		if err := os.WriteFile(filepath.Join(c.dir, ".git", "plan.toml"), []byte("# "+name+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		blob := c.git("hash-object", "-w", ".git/plan.toml")
		index := []string{"GIT_INDEX_FILE=" + filepath.Join(c.dir, ".git", "seed-index")}
		c.try(index, "update-index", "--add", "--cacheinfo", "100644,"+blob+",plan.toml")
		tree, _, _ := c.try(index, "write-tree")
		seeds[name] = c.git("commit-tree", strings.TrimSpace(tree), "-m", "seed")
		c.git("update-ref", "refs/checkpoints/seeds/r", seeds[name])
	}
	one.git("checkpoint", "push", "--secrets", "off")
	tip := three.git("rev-parse", "--short=12", runPrefix+"r")
	three.git("checkpoint", "push", "--secrets", "off")
	one.git("checkpoint", "pull")
	for _, c := range []clone{one, three, remote} {
		got := c.refs("refs/checkpoints/seeds")
		want := map[string]string{"refs/checkpoints/seeds/r": seeds["one"], "refs/checkpoints/seeds/r." + tip: seeds["three"]}
		if !maps.Equal(got, want) {
			t.Errorf("%s has the seeds %v, want %v", filepath.Base(c.dir), got, want)
		}
	}
}
