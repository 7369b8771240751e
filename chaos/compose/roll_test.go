package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The script replaces each member when the one before it is ready again, and none after one that is not.
func TestRollIsOneByOne(t *testing.T) {
	var members []string
	for name, s := range services(t) {
		if len(s.Profiles) == 0 && name != "keys" {
			members = append(members, name)
		}
	}
	slices.Sort(members)
	dir := t.TempDir()
	for name, script := range map[string]string{
		"sleep": "#!/bin/sh\n",
		// Asked for the third time a member is ready, but for one that never is.
		"compose": `#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in
*--force-recreate*) exit 0 ;;
*"exec -T $NEVER /node health --ready") exit 1 ;;
*) [ "$(grep -c -x -e "$*" "$CALLS")" -ge 3 ] ;;
esac
`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, never := range []string{"none", "node-2"} {
		calls := filepath.Join(dir, never)
		roll := exec.CommandContext(t.Context(), filepath.Join(root, "deploy", "compose", "roll.sh"), "--no-build")
		roll.Env = append(os.Environ(), "PATH="+dir+string(filepath.ListSeparator)+os.Getenv("PATH"),
			"COMPOSE="+filepath.Join(dir, "compose")+" -p shop", "CALLS="+calls, "NEVER="+never)
		out, err := roll.CombinedOutput()
		var want []string
		for _, name := range members {
			want = append(want, "-p shop up -d --no-deps --force-recreate --no-build "+name)
			times := 3
			if name == never {
				times = 120
			}
			want = append(want, slices.Repeat([]string{"-p shop exec -T " + name + " /node health --ready"}, times)...)
			if name == never {
				break
			}
		}
		text, readErr := os.ReadFile(calls)
		if got := strings.Split(strings.TrimSpace(string(text)), "\n"); readErr != nil || !slices.Equal(got, want) {
			t.Errorf("%s is never ready: %v, it calls\n%s\nwant\n%s", never, readErr, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
		told := strings.Contains(string(out), "node-2 is not ready after two minutes")
		if fails := never != "none"; (err != nil) != fails || told != fails {
			t.Errorf("%s is never ready: %v\n%s", never, err, out)
		}
	}
}
