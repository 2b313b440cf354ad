package scripttest

import "testing"

func TestVersionLess(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"2.39.5", "2.45", true},
		{"2.45.0", "2.45", false},
		{"2.45", "2.45.1", true},
		{"2.100.1", "2.45", false},
		{"3.0.windows.1", "2.45", false},
	} {
		if got := versionLess(c.a, c.b); got != c.want {
			t.Errorf("versionLess(%s, %s) = %v", c.a, c.b, got)
		}
	}
}
