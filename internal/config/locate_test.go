package config

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
	type place struct {
		key          string
		line, column int
	}
	want := []place{
		{"plain", 2, 1}, {"indented.dotted.spaced", 3, 3}, {`"quoted \"key\""."lit\\eral"`, 4, 1},
		{"table", 5, 3}, {"table.in", 6, 2}, {"table.list", 9, 1}, {"table.list.deep", 10, 9},
		{"table.inline", 11, 1}, {"table.inline.a", 11, 12}, {"table.inline.b.c", 11, 19}, {"table.inline.b.c.d", 11, 27}, {"table.inline.b.c.d.e", 11, 33},
		{"array.of", 12, 3}, {"array.of.when", 13, 1}, {"array.of", 14, 4}, {"array.of.x", 15, 1}, {`array.of."é"`, 16, 1}, {"array.of.last", 17, 1},
	}
	var got []place
	for _, d := range locate(text) {
		got = append(got, place{keyText(d.path), d.line, d.column})
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
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
		found := locate(text) // whatever the text is, it ends
		meta, err := toml.Decode(text, &map[string]any{})
		if err != nil || utf16(text) {
			return
		}
		keys := meta.Keys()
		if len(found) != len(keys) {
			t.Fatalf("%d definitions, %d keys: %v %v", len(found), len(keys), found, keys)
		}
		line := strings.Split(text, "\n")
		for i, d := range found {
			if !slices.Equal(d.path, []string(keys[i])) {
				t.Fatalf("definition %d is %q, the parser says %q", i, d.path, keys[i])
			}
			row := line[d.line-1]
			if d.line == 1 {
				row = strings.TrimPrefix(row, "\ufeff")
			}
			if rest := row[d.column-1:]; rest != strings.TrimLeft(rest, " \t") || rest == "" {
				t.Fatalf("definition %d is at %d:%d, where %q stands", i, d.line, d.column, rest)
			}
		}
	})
}
