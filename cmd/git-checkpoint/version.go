package main

import (
	"runtime/debug"
)

func versionCommand() *command {
	return &command{
		name:        "version",
		summary:     "print the version",
		synopsis:    []string{"[--json]"},
		description: `Prints the version, as git checkpoint --version does; with --json also the commit it was built from and the version of Go.`,
		examples:    []example{{"git checkpoint version", "print the version"}},
		run: func(c *call) error {
			v := readVersion()
			if c.JSON() {
				c.Object(v)
			} else {
				c.Printf("git-checkpoint version %s\n", v.Version)
			}
			return nil
		},
	}
}

type version struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from a changed working tree
	Go       string `json:"go,omitempty"`
}

// readVersion reads what the Go toolchain recorded about this build.
func readVersion() version {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version{Version: "unknown"}
	}
	v := version{Version: info.Main.Version, Go: info.GoVersion}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	if v.Version == "" {
		v.Version = "unknown"
	}
	return v
}
