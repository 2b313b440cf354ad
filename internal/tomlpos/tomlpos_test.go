package tomlpos

import (
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestLocate(t *testing.T) {
	text := strings.Join([]string{
		"# a comment = 1", // 1
		"plain = 1",       // 2
		"  indented.dotted . spaced = true # x = 1", // 3
		`"quoted \"key\"".'lit\eral' = "a = 1"`,     // 4
		"[ table ]",                                 // 5
		"\tin = '''",                                // 6
		"no = 1",                                    // 7
		"''''",                                      // 8
		"list = [ [1, 2], # ]",                      // 9
		"  \"]\", {deep = 1}, ]",                    // 10
		"inline = { a = 1, b.c = { d = [{e=1}] } }", // 11
		"[[array.of]]",               // 12
		"when = 1979-05-27 07:32:00", // 13
		"[[ array . \"of\" ]]",       // 14
		`x = """\"""` + `"""`,        // 15
		`"\u00e9" = 'é'`,             // 16
		"last = 1",                   // 17
	}, "\n")
	if _, err := toml.Decode(text, &map[string]any{}); err != nil {
		t.Fatalf("the test is no TOML: %v", err)
	}
	type where struct {
		key          string
		line, column int
	}
	want := []where{
		{"plain", 2, 1}, {"indented.dotted.spaced", 3, 3}, {`"quoted \"key\""."lit\\eral"`, 4, 1},
		{"table", 5, 3}, {"table.in", 6, 2}, {"table.list", 9, 1}, {"table.list.deep", 10, 9},
		{"table.inline", 11, 1}, {"table.inline.a", 11, 12}, {"table.inline.b.c", 11, 19}, {"table.inline.b.c.d", 11, 27}, {"table.inline.b.c.d.e", 11, 33},
		{"array.of", 12, 3}, {"array.of.when", 13, 1}, {"array.of", 14, 4}, {"array.of.x", 15, 1}, {`array.of."é"`, 16, 1}, {"array.of.last", 17, 1},
	}
	var got []where
	for _, d := range Locate(text) {
		got = append(got, where{Key(d.Path), d.Line, d.Column})
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

func TestLocateElements(t *testing.T) {
	text := `
[[task]]
id = "a"
[task.produces]
api = "x"
[[task.step]]
[[task]]
[[task.step]]
[[task.step]]
do.it = [1, [{deep = 1}, {deep = 2}]]
[other]
"a b" = 1
`
	want := []string{
		"task[0]", "task[0].id", "task[0].produces", "task[0].produces.api", "task[0].step[0]",
		"task[1]", "task[1].step[0]", "task[1].step[1]", "task[1].step[1].do.it",
		"task[1].step[1].do.it[1][0].deep", "task[1].step[1].do.it[1][1].deep",
		"other", `other."a b"`,
	}
	var got []string
	for _, d := range Locate(text) {
		got = append(got, d.At)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// What the parser of TOML lists as keys, and in which order, are exactly the
// definitions that are located, and at each place stands its key.
func FuzzLocate(f *testing.F) {
	for _, seed := range []string{
		"", "a = 1", "\ufeffa = 1\r\nb = 2", "[a]\nb = [[1], {c = 2}]\n[[d.e]]\nf = {g.h = \"\"\"x\"\"\"\"}\n",
		"a.\"b\\u0041\".'c' = '''x''''\n", "x = 1e5 # [y]\n[z]", "a = {\n b = 1, # c = 2\n d = [\n], }\n", "a = \"\\\\\"\nb = '\\'\n",
		"\"\" = 1979-05-27 07:32:00Z\n[\"a.b\"]\n\t'' = +inf", "a = \"\"\"\\\"\"\"\"\"\"\nb = \"\"\"\"\"\"\"\"", "[commit]\nname = 3",
		"a = \"\\e\\x41\\U0001F600\"\n\"\\x41\" = 1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		found := Locate(text) // whatever the text is, it ends
		meta, err := toml.Decode(text, &map[string]any{})
		if err != nil || strings.HasPrefix(text, "\xff\xfe") || strings.HasPrefix(text, "\xfe\xff") {
			return
		}
		keys := meta.Keys()
		if len(found) != len(keys) {
			t.Fatalf("%d definitions, %d keys: %v %v", len(found), len(keys), found, keys)
		}
		line := strings.Split(text, "\n")
		seen := map[string]bool{}
		for i, d := range found {
			if !slices.Equal(d.Path, []string(keys[i])) {
				t.Fatalf("definition %d is %q, the parser says %q", i, d.Path, keys[i])
			}
			if seen[d.At] && !d.Header {
				t.Fatalf("two definitions are at %s", d.At)
			}
			seen[d.At] = true
			row := line[d.Line-1]
			if d.Line == 1 {
				row = strings.TrimPrefix(row, "\ufeff")
			}
			if rest := row[d.Column-1:]; rest != strings.TrimLeft(rest, " \t") || rest == "" {
				t.Fatalf("definition %d is at %d:%d, where %q stands", i, d.Line, d.Column, rest)
			}
		}
	})
}
