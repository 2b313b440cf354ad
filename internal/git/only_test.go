package git_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Only this package starts git, and only internal/command what a plan says.
// internal/sample and internal/scripttest are for tests alone, and looking for a program starts none.
// Nothing uses the part of go-git that writes working trees or refs.
func TestOnlyTwoPackagesStartProcesses(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "bench" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		for _, allowed := range []string{"internal/git/", "internal/command/", "internal/sample/", "internal/scripttest/"} {
			if strings.Contains(filepath.ToSlash(path), allowed) {
				return nil
			}
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, i := range f.Imports {
			switch name, _ := strconv.Unquote(i.Path.Value); {
			case name == "github.com/go-git/go-git/v5", name == "os/exec" && (i.Name != nil || !onlyLooks(f)):
				t.Errorf("%s imports %s", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// onlyLooks says whether a file uses nothing of os/exec that starts a process.
func onlyLooks(f *ast.File) bool {
	only := true
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "exec" && s.Sel.Name != "LookPath" {
				only = false
			}
		}
		return only
	})
	return only
}
