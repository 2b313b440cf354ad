//go:build unix

package share_test

import (
	"fmt"
	"net"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// server is a way to a bare repository. serve returns its URL and what a
// client needs in its environment; it skips where a tool is missing.
type server struct {
	name  string
	serve func(t *testing.T, remote clone) (url string, env []string)
}

var servers = []server{{"file", serveFile}, {"http", serveHTTP}, {"daemon", serveDaemon}, {"ssh", serveSSH}}

func serveFile(_ *testing.T, remote clone) (string, []string) { return "file://" + remote.dir, nil }

func serveHTTP(t *testing.T, remote clone) (string, []string) {
	backend := filepath.Join(remote.git("--exec-path"), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("git http-backend is not installed")
	}
	remote.git("config", "http.receivepack", "true")
	s := httptest.NewServer(&cgi.Handler{Path: backend, Env: []string{
		"GIT_PROJECT_ROOT=" + filepath.Dir(remote.dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + filepath.Dir(remote.dir),
	}})
	t.Cleanup(s.Close)
	return s.URL + "/" + filepath.Base(remote.dir), nil
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skipf("no port on the loopback: %v", err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

// start runs a server until the test ends, and waits until it answers.
func start(t *testing.T, port string, cmd *exec.Cmd) {
	t.Helper()
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
	})
	for range 200 {
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			c.Close()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	cmd.Wait()
	t.Skipf("%s does not answer: %s", filepath.Base(cmd.Path), said.String())
}

func serveDaemon(t *testing.T, remote clone) (string, []string) {
	daemon := filepath.Join(remote.git("--exec-path"), "git-daemon")
	if _, err := os.Stat(daemon); err != nil {
		t.Skip("git daemon is not installed")
	}
	port, base := freePort(t), filepath.Dir(remote.dir)
	cmd := exec.Command(daemon, "--listen=127.0.0.1", "--port="+port, "--reuseaddr", "--export-all", "--enable=receive-pack",
		"--max-connections=8", "--timeout=60", "--init-timeout=60", "--base-path="+base, base)
	cmd.Env = remote.env
	start(t, port, cmd)
	return "git://127.0.0.1:" + port + "/" + filepath.Base(remote.dir), nil
}

func serveSSH(t *testing.T, remote clone) (string, []string) {
	var sshd string
	for _, file := range []string{"/usr/sbin/sshd", "/usr/local/sbin/sshd", "/usr/bin/sshd"} {
		if _, err := os.Stat(file); err == nil && sshd == "" {
			sshd = file
		}
	}
	if _, err := exec.LookPath("ssh-keygen"); err != nil || sshd == "" {
		t.Skip("no ssh server is installed (Debian: openssh-server)")
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if me.Uid == "0" {
		os.MkdirAll("/run/sshd", 0o755) // it insists
	}
	dir := t.TempDir()
	for _, key := range []string{"host", "client"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	port := freePort(t)
	config := filepath.Join(dir, "sshd_config")
	text := fmt.Sprintf("Port %s\nListenAddress 127.0.0.1\nHostKey %s/host\nAuthorizedKeysFile %s/client.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\n", port, dir, dir)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, port, exec.Command(sshd, "-D", "-e", "-f", config))
	ssh := "ssh -F none -i " + dir + "/client -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=" + dir + "/known"
	return "ssh://" + me.Username + "@127.0.0.1:" + port + remote.dir, []string{"GIT_SSH_COMMAND=" + ssh}
}

// pair is two who share by a server, the second a copy of the first.
func pair(t *testing.T, s server) (remote, one, two clone) {
	t.Helper()
	root := t.TempDir()
	env := environment(t, root)
	remote, one = clone{t, filepath.Join(root, "remote.git"), env}, clone{t, filepath.Join(root, "one"), env}
	for _, c := range []clone{remote, one} {
		if err := os.Mkdir(c.dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	remote.git("init", "-q", "--bare", "-b", "main")
	remote.git("config", "receive.denyNonFastForwards", "true")
	remote.git("config", "receive.denyDeletes", "true")
	remote.git("config", "receive.fsckObjects", "true")
	url, more := s.serve(t, remote)
	one.env = append(slices.Clone(env), more...)
	one.git("init", "-q", "-b", "main")
	one.git("remote", "add", "upstream", url)
	one.git("commit", "-q", "--allow-empty", "-m", "first")
	one.git("push", "-q", "upstream", "main")
	one.save("r", "plan", "1")
	return remote, one, one.copyTo("two")
}

func (c clone) save(run, step, content string) {
	c.Helper()
	if err := os.WriteFile(filepath.Join(c.dir, "file"), []byte(content+"\n"), 0o666); err != nil {
		c.Fatal(err)
	}
	c.git("checkpoint", "save", "--run", run, "--step", step)
}

// N.5: the same over each way that git knows.
func TestServers(t *testing.T) {
	t.Parallel()
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			remote, one, two := pair(t, s)
			for day := range 3 {
				one.save("r", "work", fmt.Sprintf("one %d", day))
				two.save("r", "work", fmt.Sprintf("two %d", day))
				if day != 1 {
					two.save("second", "plan", fmt.Sprintf("two plans %d", day))
				}
			}
			one.git("checkpoint", "push")
			out := two.git("checkpoint", "push")
			if !strings.Contains(out, "run 'r' went on elsewhere: ours is now 'r.") {
				t.Errorf("push of the other: %s", out)
			}
			if run := two.git("symbolic-ref", "CHECKPOINT_HEAD"); !strings.HasPrefix(run, runPrefix+"r.") && run != runPrefix+"second" {
				t.Errorf("the current run is %s", run)
			}
			one.git("checkpoint", "pull")
			want := remote.shared()
			if len(want) != 6 {
				t.Errorf("the remote has %v", want)
			}
			for _, c := range []clone{one, two} {
				for ref, id := range want {
					if have := c.shared()[ref]; have != id {
						t.Errorf("%s: %s is %q, the remote's %q", filepath.Base(c.dir), ref, have, id)
					}
				}
				if out := c.git("checkpoint", "push"); out != "'upstream' is up to date" {
					t.Errorf("a second push: %s", out)
				}
				c.git("checkpoint", "verify")
			}
			remote.git("fsck", "--strict", "--no-dangling", "--no-progress")
		})
	}
}

// What a server refuses is said with the ref, and the code push goes through.
func TestServersRefuse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		setUp func(remote clone)
		want  []string
	}{
		{"hidden refs", func(r clone) { r.git("config", "transfer.hideRefs", "refs/checkpoints") },
			[]string{"refused refs/checkpoints/runs/r: deny updating a hidden ref"}},
		{"refs by a hook", hook("pre-receive", `while read -r old new ref; do case $ref in refs/heads/*) ;; *) echo "only branches here, not $ref" >&2; exit 1;; esac; done`),
			[]string{"refused refs/checkpoints/runs/r: pre-receive hook declined: only branches here, not refs/notes/checkpoints/r"}},
		{"one ref by a hook", hook("update", `case $1 in refs/checkpoints/*) echo "no $1" >&2; exit 1;; esac`),
			[]string{"refused refs/checkpoints/runs/r: hook declined: no refs/checkpoints/runs/r"}},
		{"identity by a hook", hook("pre-receive", `while read -r old new ref; do case $(git log -1 --format=%ce $new) in *@localhost) echo "who is $(git log -1 --format=%ce $new)?" >&2; exit 1;; esac; done`),
			[]string{"refused refs/checkpoints/runs/r: pre-receive hook declined: who is git-checkpoint@localhost?"}},
		{"message by a hook", hook("pre-receive", `while read -r old new ref; do if git log --format=%s $new --not --all | grep -q '^checkpoint: '; then echo "$ref: a subject names a ticket" >&2; exit 1; fi; done`),
			[]string{"refused refs/checkpoints/runs/r: pre-receive hook declined: refs/checkpoints/runs/r: a subject names a ticket"}},
		{"size", func(r clone) { r.git("config", "receive.maxInputSize", "20k") },
			[]string{"refused refs/checkpoints/runs/r: ", "exceeds maximum allowed size"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, s := range servers[:2] {
				t.Run(s.name, func(t *testing.T) {
					remote, one, _ := pair(t, s)
					c.setUp(remote)
					noise := make([]byte, 60<<10)
					for i, x := 0, uint32(1); i < len(noise); i++ {
						x = x*1664525 + 1013904223
						noise[i] = byte(x >> 24)
					}
					if err := os.WriteFile(filepath.Join(one.dir, "noise"), noise, 0o666); err != nil {
						t.Fatal(err)
					}
					one.save("r", "work", "2")
					_, stderr, code := one.try(nil, "checkpoint", "push")
					if code != 3 {
						t.Errorf("exit code %d", code)
					}
					for _, want := range c.want {
						if !strings.Contains(stderr, want) {
							t.Errorf("it says nothing of %q:\n%s", want, stderr)
						}
					}
					one.git("config", "checkpoint.push.auto", "true")
					one.git("checkpoint", "install")
					one.git("commit", "-q", "--allow-empty", "-m", "second")
					_, stderr, code = one.try(nil, "push", "-q", "upstream", "HEAD:main")
					if code != 0 || remote.git("rev-parse", "main") != one.git("rev-parse", "HEAD") {
						t.Errorf("the code was not pushed: exit code %d\n%s", code, stderr)
					}
					if n := strings.Count(stderr, "warning: "); n != 1 || !strings.Contains(stderr, "refused") {
						t.Errorf("the hook said:\n%s", stderr)
					}
				})
			}
		})
	}
}

// A server that refuses one run, by a message in it, gets the others; push says
// which was refused, in the server's words, and goes on where it left off once
// the server takes it.
func TestServerRefusesOneRunByItsMessage(t *testing.T) {
	t.Parallel()
	for _, s := range servers[:2] {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			remote, one, _ := pair(t, s)
			hook("update", `for c in $(git rev-list $3 --not --all); do case $(git log -1 --format=%B $c) in *WIP*) echo "unfinished work stays at home" >&2; exit 1;; esac; done`)(remote)
			one.save("good", "plan", "2")
			one.git("checkpoint", "save", "--run", "bad", "--step", "plan", "-m", "WIP: try it")
			one.save("last", "plan", "3")

			stdout, stderr, code := one.try(nil, "checkpoint", "push", "--json")
			if code != 3 {
				t.Errorf("exit code %d\n%s", code, stderr)
			}
			if !strings.Contains(stdout, `"refused":[{"ref":"refs/checkpoints/runs/bad","reason":"hook declined: unfinished work stays at home"}]`) ||
				!strings.Contains(stdout, `"pushed":["good","last","r"]`) {
				t.Errorf("it answers:\n%s", stdout)
			}
			_, stderr, _ = one.try(nil, "checkpoint", "push")
			if !strings.Contains(stderr, "refused refs/checkpoints/runs/bad: hook declined: unfinished work stays at home") {
				t.Errorf("it says:\n%s", stderr)
			}
			theirs, ours := remote.shared(), one.shared()
			for _, run := range []string{"r", "good", "last"} {
				if ref := runPrefix + run; theirs[ref] == "" || theirs[ref] != ours[ref] {
					t.Errorf("%s is %q there, and %q here", ref, theirs[ref], ours[ref])
				}
			}
			if id := theirs[runPrefix+"bad"]; id != "" {
				t.Errorf("the server took %s", id)
			}

			if err := os.Remove(filepath.Join(remote.dir, "hooks", "update")); err != nil {
				t.Fatal(err)
			}
			one.git("checkpoint", "push")
			if theirs := remote.shared(); theirs[runPrefix+"bad"] != ours[runPrefix+"bad"] {
				t.Errorf("the server has %v", theirs)
			}
			one.git("checkpoint", "verify")
		})
	}
}

func hook(name, script string) func(clone) {
	return func(remote clone) {
		file := filepath.Join(remote.dir, "hooks", name)
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o777); err != nil {
			remote.Fatal(err)
		}
	}
}

// A server that takes connections and never answers is given up, and what was
// started for it ends too.
func TestServerThatHangs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skipf("no port on the loopback: %v", err)
	}
	defer l.Close()
	root := t.TempDir()
	c := clone{t, filepath.Join(root, "one"), environment(t, root)}
	if err := os.Mkdir(c.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	c.git("init", "-q")
	c.save("r", "plan", "1")
	for _, url := range []string{"http://" + l.Addr().String() + "/x.git", "git://" + l.Addr().String() + "/x.git"} {
		begun := time.Now()
		_, stderr, code := c.try(nil, "checkpoint", "push", url, "--timeout", "1")
		if code != 128 || !strings.Contains(stderr, "the remote '"+url+"' did not answer within 1s") {
			t.Errorf("%s: exit code %d\n%s", url, code, stderr)
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("%s: it took %v", url, took)
		}
	}
	left, _ := exec.Command("pgrep", "-f", l.Addr().String()).Output()
	if len(left) > 0 {
		t.Errorf("processes are left: %s", left)
	}
}
