//go:build unix

package worktree_test

import "testing"

// newRepository makes a repository with one commit that has a bit of
// everything, and a branch 'side' that conflicts with what main goes on to.
func newRepository(t *testing.T) sandbox {
	t.Helper()
	s := sandbox{t, t.TempDir()}
	s.git("init", "-q", "-b", "main")
	s.write(".gitignore", "*.log\nbuild/\n")
	s.write(".gitattributes", "*.crlf text=auto\n")
	s.write("a.txt", "one\ntwo\nthree\n")
	for _, name := range []string{"dir/b.txt", "dir/gone.txt", "nested/deep/er/c.txt", "swap-file", "swap-dir/in/x", "swap-dir/y", "skip.txt", "kept.txt", "assume.txt", "tool"} {
		s.write(name, name+"\n")
	}
	s.write("run.sh", "#!/bin/sh\n")
	s.chmod("run.sh", 0o755)
	s.write("line.crlf", "a\nb\n")
	s.link("a.txt", "link")
	s.git("add", ".")
	s.git("commit", "-q", "-m", "base")
	s.git("checkout", "-q", "-b", "side")
	s.write("a.txt", "one\nside\nthree\n")
	s.remove("dir/b.txt")
	s.write("side.txt", "side\n")
	s.git("add", "-A")
	s.git("commit", "-q", "-m", "side")
	s.git("checkout", "-q", "main")
	return s
}

// rich makes changes of every kind.
func (s sandbox) rich() {
	s.Helper()
	s.write("a.txt", "one\nstaged\nthree\n")
	s.git("add", "a.txt")
	s.write("a.txt", "one\nstaged\nand not staged\n")
	s.remove("dir/b.txt")
	s.git("rm", "-q", "dir/gone.txt")
	s.git("rm", "-q", "--cached", "assume.txt")
	s.chmod("run.sh", 0o644)
	s.chmod("tool", 0o755)
	s.git("add", "tool")
	s.remove("link")
	s.link("nowhere", "link")
	s.link("dir", "link-to-dir")
	s.write("new.txt", "untracked\n")
	s.write("a name\nof two lines", "untracked\n")
	s.write("intent.txt", "intended\n")
	s.git("add", "-N", "intent.txt")
	s.git("update-index", "--skip-worktree", "skip.txt", "kept.txt")
	s.remove("skip.txt")
	s.write("kept.txt", "changed, whatever the flag says\n")
	s.write("notes.log", "ignored, but added by force\n")
	s.git("add", "-f", "notes.log")
	s.write("line.crlf", "a\r\nb\r\nc\r\n")
	s.write("nested/deep/er/c.txt", "changed\n")
	s.write("only/here/x/y", "untracked\n")
}

// poor takes back what rich and a merge did.
func (s sandbox) poor() {
	s.Helper()
	s.git("update-index", "--no-skip-worktree", "skip.txt", "kept.txt")
	s.git("reset", "-q", "--hard")
	s.git("clean", "-fdxq")
}

// other makes changes of every kind that are others than rich's.
func (s sandbox) other() {
	s.Helper()
	s.write("a.txt", "quite different\n")
	s.remove("swap-file", "swap-dir", "nested", "link", "run.sh")
	s.write("swap-file/is/now", "a directory\n")
	s.write("swap-file/too", "a directory\n")
	s.write("swap-dir", "a file now\n")
	s.git("add", "swap-dir")
	s.write("link", "a file now\n")
	s.link("tool", "run.sh")
	s.write("notes.log", "ignored, and in the way\n")
	s.write("build/out.o", "ignored\n")
	s.write("line.crlf", "a\nb\r\nmixed\r\n")
	s.write("more.txt", "staged\n")
	s.git("add", "more.txt")
	s.write("intent-2.txt", "")
	s.git("add", "-N", "intent-2.txt")
	s.write("assume.txt", "changed\n")
	s.git("update-index", "--assume-unchanged", "assume.txt")
}

// runs makes a repository with a run 'one', whose steps are 'rich' and
// 'merge', and a run 'two' elsewhere; then main goes on, and other changes
// are there. It returns the worlds of the steps too.
func runs(t *testing.T) (s sandbox, rich, merge world) {
	t.Helper()
	s = newRepository(t)
	s.rich()
	rich = s.world()
	s.checkpoint("save", "--run", "one", "--step", "rich")

	s.poor()
	s.write("a.txt", "one\nmain\nthree\n")
	s.write("dir/b.txt", "changed on main\n")
	s.git("commit", "-q", "-a", "-m", "main")
	s.ask("merge", "side") // it conflicts
	s.write("merged.txt", "untracked\n")
	merge = s.world()
	s.checkpoint("save", "--run", "one", "--step", "merge")

	s.git("merge", "--abort")
	s.remove("merged.txt")
	s.git("checkout", "-q", "side")
	s.write("two.txt", "untracked\n")
	s.write("a.txt", "of run two\n")
	s.checkpoint("save", "--run", "two", "--step", "elsewhere")
	s.poor()
	s.git("checkout", "-q", "main")
	s.write("later.txt", "later\n")
	s.git("add", "later.txt")
	s.git("commit", "-q", "-m", "later")
	s.other()
	return s, rich, merge
}

// plainRuns is a repository without attributes, with a run "one" whose step
// "rich" has changes of every kind, and in which others were made since.
func plainRuns(t *testing.T) sandbox {
	t.Helper()
	s := newRepository(t)
	s.git("rm", "-q", ".gitattributes")
	s.git("commit", "-q", "-m", "no attributes")
	s.rich()
	s.checkpoint("save", "--run", "one", "--step", "rich")
	s.poor()
	s.other()
	return s
}
