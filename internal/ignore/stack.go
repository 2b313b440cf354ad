package ignore

// Stack is the sources that hold for the entries of one directory. It never
// changes, so goroutines may share it: who enters a directory makes a new one
// by Push, and who leaves it goes on with the old one.
type Stack struct {
	own     *List  // may be nil: the .gitignore of the directory
	above   *Stack // nil at the top
	sources *sources
}

// sources hold in every directory. Each may be nil.
type sources struct{ command, info, global *List }

// NewStack makes the stack for the top of a working tree, still without its
// .gitignore, from the patterns of the command line (or of what stands for it),
// of info/exclude and of core.excludesFile. Any of them may be nil.
func NewStack(command, info, global *List) *Stack {
	return &Stack{sources: &sources{command, info, global}}
}

// Push adds the .gitignore of a directory. nil is a directory without one.
func (s *Stack) Push(gitignore *List) *Stack {
	if gitignore == nil || gitignore.Empty() {
		return s
	}
	return &Stack{own: gitignore, above: s, sources: s.sources}
}

// Match asks the sources in git's order, and the first that knows answers. A
// directory for which it says Ignored is not entered by git: all below it is
// ignored too, and no .gitignore below it is read.
func (s *Stack) Match(path []byte, isDir bool) Result {
	if r := ask(s.sources.command, path, isDir); r != None {
		return r
	}
	for at := s; at != nil; at = at.above {
		if r := ask(at.own, path, isDir); r != None {
			return r
		}
	}
	if r := ask(s.sources.info, path, isDir); r != None {
		return r
	}
	return ask(s.sources.global, path, isDir)
}

func ask(l *List, path []byte, isDir bool) Result {
	if l == nil {
		return None
	}
	return l.Match(path, isDir)
}
