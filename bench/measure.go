package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// isolate keeps the user's configuration out of what is measured.
func isolate() {
	for name, value := range map[string]string{
		"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.DevNull,
		"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.com",
	} {
		os.Setenv(name, value)
	}
}

// process is a program to start.
type process struct{ cmd *exec.Cmd }

func command(dir, name string, args ...string) process {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	return process{cmd}
}

// with adds a variable to the environment.
func (p process) with(name, value string) process {
	p.cmd.Env = append(p.cmd.Environ(), name+"="+value)
	return p
}

// input gives the process its standard input.
func (p process) input(text string) process {
	p.cmd.Stdin = strings.NewReader(text)
	return p
}

func (p process) output() (string, error) {
	var stdout, stderr bytes.Buffer
	p.cmd.Stdout, p.cmd.Stderr = &stdout, &stderr
	if err := p.cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(p.cmd.Args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

func (p process) run() error {
	_, err := p.output()
	return err
}

// side is one of the two ways to do a row's work.
type side struct {
	prepare func() error // what is not measured; may be nil
	work    func() error
}

func (s side) time() (time.Duration, error) {
	if s.prepare != nil {
		if err := s.prepare(); err != nil {
			return 0, err
		}
	}
	begun := time.Now()
	err := s.work()
	return time.Since(begun), err
}

// result is what the pairs of a row gave.
type result struct {
	ours, git time.Duration // medians
	ratios    []float64
}

// measure lets the two sides of a row take turns; who begins changes. The
// first pair only warms up: what a save keeps for the next is that of its way.
func (b *bench) measure(repo repository, name string, row row, way string) (*result, error) {
	b.way = way
	dir, err := b.repository(repo, name)
	if err != nil {
		return nil, err
	}
	if !repo.keep {
		defer os.RemoveAll(dir)
	}
	ours, git, err := row.sides(b, dir)
	if err != nil {
		return nil, err
	}
	pairs := b.pairs
	if pairs == 0 {
		pairs = repo.pairs
	}
	r := &result{}
	var times [2][]time.Duration
	for i := range pairs + 1 {
		var took [2]time.Duration
		for j := range 2 {
			which := (i + j) % 2
			if took[which], err = []side{ours, git}[which].time(); err != nil {
				return nil, err
			}
		}
		if i > 0 {
			times[0], times[1] = append(times[0], took[0]), append(times[1], took[1])
			r.ratios = append(r.ratios, float64(took[0])/float64(took[1]))
		}
	}
	r.ours, r.git = median(times[0]), median(times[1])
	return r, nil
}

func median[T cmp.Ordered](list []T) T {
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// line measures a row, in both of our ways if byGit says so and it has two.
func (b *bench) line(repo repository, name string, row row, byGit bool) (string, error) {
	r, err := b.measure(repo, name, row, "")
	if err != nil {
		return "", err
	}
	line := fmt.Sprintf("| %s | %s | %s | %s: %s | %.2f | %.2f–%.2f | %s |", name, row.name, milliseconds(r.ours), row.git, milliseconds(r.git),
		median(r.ratios), slices.Min(r.ratios), slices.Max(r.ratios), row.target)
	if !byGit || !row.byGit {
		return line + "  |  |", nil
	}
	if r, err = b.measure(repo, name, row, "git"); err != nil {
		return "", err
	}
	return line + fmt.Sprintf(" %s | %.2f |", milliseconds(r.ours), median(r.ratios)), nil
}

func milliseconds(d time.Duration) string {
	ms := float64(d.Microseconds()) / 1000
	if ms >= 100 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f ms", ms)
}
