package refs

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/git-checkpoint/git-checkpoint/internal/fault"
)

// The names of refs, a public format (docs/format.md).
const (
	// Current is the per-worktree symbolic ref to the current run. It is a
	// hint: it may dangle.
	Current = "CHECKPOINT_HEAD"

	RunPrefix   = "refs/checkpoints/runs/"
	NotesPrefix = "refs/notes/checkpoints/"
	SeedPrefix  = "refs/checkpoints/seeds/"
	LocalPrefix = "refs/checkpoints/local/"

	// RemotePrefix is what was fetched from each remote, before it is merged.
	RemotePrefix = "refs/checkpoints/remotes/"
	// PrunedRef is the list of runs that were pruned.
	PrunedRef = "refs/checkpoints/pruned"

	// Restoring is the local ref of a restore that is under way.
	Restoring = "restoring"
)

// RunRef is the ref of a run's tip.
func RunRef(run string) string { return RunPrefix + run }

// NotesRef is the ref of a run's notes.
func NotesRef(run string) string { return NotesPrefix + run }

// SeedRef is the ref of a run's seed and plan.
func SeedRef(run string) string { return SeedPrefix + run }

// LocalRef is a ref that belongs to one worktree and is never pushed.
func LocalRef(worktree, name string) string { return LocalPrefix + worktree + "/" + name }

// maxRun is the length of the longest run id.
const maxRun = 100

// Regular expressions would cost every command their compilation.
func isRunID(s string) bool {
	for i := range len(s) {
		if !isRunByte(s[i]) || i == 0 && strings.IndexByte("._-", s[0]) >= 0 {
			return false
		}
	}
	return s != "" && len(s) <= maxRun
}

func isRunByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// CheckRun says what is wrong with a run id: it must match
// [A-Za-z0-9][A-Za-z0-9._-]{0,99} and be a valid ref component
// (git-check-ref-format). The error is fault.Invalid.
func CheckRun(run string) error {
	var why string
	switch {
	case !isRunID(run):
		why = "it must be 1 to 100 letters, digits, '.', '_' and '-', the first a letter or digit"
	case strings.Contains(run, ".."):
		why = "it must not contain '..'"
	case strings.HasSuffix(run, "."):
		why = "it must not end in '.'"
	case strings.HasSuffix(strings.ToLower(run), ".lock"):
		why = "it must not end in '.lock'"
	default:
		return nil
	}
	return fault.New(fault.Invalid, "invalid-run", "'%s' is no run id: %s", printable(run), why)
}

// cutVisit cuts a final '#' and digits off.
func cutVisit(s string) (step, visit string, ok bool) {
	step = strings.TrimRight(s, "0123456789")
	if visit = s[len(step):]; visit == "" || !strings.HasSuffix(step, "#") {
		return s, "", false
	}
	return step[:len(step)-1], visit, true
}

// CheckStep says what is wrong with a step name: it must be UTF-8 of 1 to 200
// bytes, without control characters, leading or trailing space, '{…}' or a
// final '#digits'. The error is fault.Invalid.
func CheckStep(step string) error {
	var why string
	switch {
	case step == "":
		why = "it is empty"
	case len(step) > 200:
		why = "it is longer than 200 bytes"
	case !utf8.ValidString(step):
		why = "it is not UTF-8"
	case strings.ContainsFunc(step, unicode.IsControl):
		why = "it has a control character"
	case strings.TrimSpace(step) != step:
		why = "it begins or ends with a space"
	case strings.HasPrefix(step, "{") && strings.HasSuffix(step, "}"):
		why = "'{…}' stands for a number of checkpoints back"
	case endsInVisit(step):
		why = "a final '#' and digits stand for a visit"
	default:
		return nil
	}
	return fault.New(fault.Invalid, "invalid-step", "'%s' is no step name: %s", printable(step), why)
}

func endsInVisit(step string) bool {
	_, _, ok := cutVisit(step)
	return ok
}

// printable keeps bytes that would confuse a terminal out of a message.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// GenerateRun makes up the id of a fresh run: <branch>-<yyyymmdd>-<4 random>.
// Characters of the branch that an id cannot hold become '-'; without a
// branch it is "detached".
func GenerateRun(branch string, at time.Time) string {
	branch = strings.TrimPrefix(branch, "refs/heads/")
	if branch == "" {
		branch = "detached"
	}
	return idPart(branch, maxRun-len("-20060102-xxxx")) + "-" + at.Format("20060102") + "-" + random4()
}

// GenerateChild makes up the id of a run that descends from another: <source>.<4 random>.
func GenerateChild(source string) string {
	return idPart(source, maxRun-len(".xxxx")) + "." + random4()
}

func idPart(s string, limit int) string {
	b := []byte(s)
	for i, c := range b {
		if !isRunByte(c) {
			b[i] = '-'
		}
	}
	s = strings.ReplaceAll(string(b), "..", ".-")
	s = strings.TrimLeft(s, "-._")
	if len(s) > limit {
		s = s[:limit]
	}
	s = strings.TrimRight(s, ".")
	if s == "" {
		return "run"
	}
	return s
}

// random4 is four characters that are easy to tell apart and to type.
func random4() string {
	const alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
	var b [4]byte
	rand.Read(b[:])
	for i := range b {
		b[i] = alphabet[b[i]&31]
	}
	return string(b[:])
}

// Address names a checkpoint, in one of the forms <run>, <run>@{n},
// <run>@<step>, <run>@<step>#<visit>, @{n}, @<step>, rev:<git revision>.
type Address struct {
	Run      string // empty: the current run
	Back     int    // n of @{n}: how many checkpoints back from the newest
	Step     string // empty: by Back
	Visit    int    // 1-based; 0: the last
	Revision string // of rev:; the rest is empty then
}

// ParseAddress reads an address. The error is fault.Invalid. The empty text
// is the newest checkpoint of the current run.
func ParseAddress(text string) (Address, error) {
	if rev, ok := strings.CutPrefix(text, "rev:"); ok {
		if rev == "" {
			return Address{}, fault.New(fault.Invalid, "invalid-address", "'%s' is no checkpoint: a git revision must follow 'rev:'", text)
		}
		return Address{Revision: rev}, nil
	}
	run, rest, at := strings.Cut(text, "@")
	a := Address{Run: run}
	if run != "" {
		if err := CheckRun(run); err != nil {
			return Address{}, fault.New(fault.Invalid, "invalid-address", "'%s' is no checkpoint: %v", printable(text), err).
				WithHint("a checkpoint is <run>, <run>@{n}, <run>@<step>, @{n}, @<step> or rev:<git revision>")
		}
	}
	if !at {
		return a, nil
	}
	if strings.HasPrefix(rest, "{") && strings.HasSuffix(rest, "}") {
		n, err := strconv.Atoi(rest[1 : len(rest)-1])
		if err != nil || n < 0 {
			return Address{}, fault.New(fault.Invalid, "invalid-address", "'%s' is no checkpoint: '%s' is no number of checkpoints back", printable(text), printable(rest))
		}
		a.Back = n
		return a, nil
	}
	if step, visit, ok := cutVisit(rest); ok {
		n, err := strconv.Atoi(visit)
		if err != nil || n < 1 {
			return Address{}, fault.New(fault.Invalid, "invalid-address", "'%s' is no checkpoint: visits count from 1", printable(text))
		}
		rest, a.Visit = step, n
	}
	if err := CheckStep(rest); err != nil {
		return Address{}, fault.New(fault.Invalid, "invalid-address", "'%s' is no checkpoint: %v", printable(text), err)
	}
	a.Step = rest
	return a, nil
}

func (a Address) String() string {
	switch {
	case a.Revision != "":
		return "rev:" + a.Revision
	case a.Step != "" && a.Visit > 0:
		return fmt.Sprintf("%s@%s#%d", a.Run, a.Step, a.Visit)
	case a.Step != "":
		return a.Run + "@" + a.Step
	case a.Back > 0 || a.Run == "":
		return fmt.Sprintf("%s@{%d}", a.Run, a.Back)
	}
	return a.Run
}
