package sim

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// The golden file holds a hash of the record of goldenSeeds runs of each kind: of
// every event, every frame as bytes and every answer. While it stays as it is, the
// cluster behaves as before, to the byte and the microsecond.
//
// A change that is meant to change behaviour, or the bytes of a frame, writes it
// anew, and its commit says why:
//
//	go test ./chaos/sim -run '^TestGolden$' -rewrite
//
// To see what changed, print the record of a seed that differs with the program of
// before and with that of now, and compare:
//
//	go test ./chaos/sim -run '^TestGolden$' -record split/94 -record-to /tmp/now.txt
//
// All seeds are compared where WEIR_SIM_SEEDS is goldenSeeds or more, as in make
// test-long, and else the first five of each kind.
const (
	goldenFile  = "testdata/golden.txt"
	goldenSeeds = 200     // of each kind
	goldenKinds = Outages // and those before it: what nodes with disks do is judged, not held to a record
)

var (
	rewrite  = flag.Bool("rewrite", false, "write the hashes of all golden runs into "+goldenFile)
	record   = flag.String("record", "", "write the record of the golden run `KIND/SEED` to the file of -record-to")
	recordTo = flag.String("record-to", "", "the file that -record writes, by its absolute path")
)

// hashOf returns the hash of the record of a run.
func hashOf(kind Kind, seed int) (string, error) {
	hash := sha256.New()
	out := bufio.NewWriter(hash)
	w := worldOf(kind, uint64(seed))
	w.record = out
	if err := w.play(kind, uint64(seed)); err != nil {
		return "", err
	}
	if err := out.Flush(); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

// TestGolden: the cluster does what it did when the golden file was written.
func TestGolden(t *testing.T) {
	if *record != "" {
		writeRecord(t, *record, *recordTo)
		return
	}
	worlds(t)
	count, want := min(goldenSeeds, seeds(t, 5)), map[string]string{}
	if *rewrite {
		count = goldenSeeds
	} else {
		want = readGolden(t)
	}
	got := [goldenKinds][]string{}
	t.Run("all", func(t *testing.T) {
		for kind := range goldenKinds {
			t.Run(kind.String(), func(t *testing.T) {
				t.Parallel()
				other := 0
				for seed := range count {
					name := fmt.Sprintf("%v/%d", kind, seed)
					hash, err := hashOf(kind, seed)
					if err != nil {
						t.Error(err)
						continue
					}
					got[kind] = append(got[kind], name+" "+hash)
					if !*rewrite && hash != want[name] {
						differs(t, kind, seed, hash, want[name])
						if other++; other == 3 {
							t.Fatal("three runs differ, and the rest of this kind is not compared")
						}
					}
				}
			})
		}
	})
	if *rewrite && !t.Failed() {
		text := ""
		for _, lines := range got {
			text += strings.Join(lines, "\n") + "\n"
		}
		if err := os.WriteFile(goldenFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// differs reports a run whose hash is another, and whether it is another again when
// the run is repeated.
func differs(t *testing.T, kind Kind, seed int, got, want string) {
	t.Helper()
	if again, err := hashOf(kind, seed); err != nil || again != got {
		t.Errorf("%v/%d does not repeat: %s, then %s %v", kind, seed, got, again, err)
		return
	}
	t.Errorf("%v/%d is %s, and was %s: to see what changed, run this with both programs, and compare the files:\n"+
		"go test ./chaos/sim -run '^TestGolden$' -record %v/%d -record-to /tmp/record.txt", kind, seed, got, want, kind, seed)
}

// TestGoldenRepeats: a run is the same each time, in each of its bytes.
func TestGoldenRepeats(t *testing.T) {
	worlds(t)
	for kind := range goldenKinds {
		first, err := hashOf(kind, 0)
		if err != nil {
			t.Fatal(err)
		}
		if second, err := hashOf(kind, 0); err != nil || second != first {
			t.Errorf("%v/0 is %s, and run again %s (%v)", kind, first, second, err)
		}
	}
}

// TestRecordsAreComplete: a record has all frames, events and answers, so no change
// of one is missed, and every other line is a remark.
func TestRecordsAreComplete(t *testing.T) {
	worlds(t)
	var text strings.Builder
	w := newWorld(uint64(Crash))
	w.record, w.remarks = &text, true
	if err := w.play(Crash, 0); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for line := range strings.Lines(text.String()) {
		for _, what := range []string{"#", " => ", " event ", " decides "} {
			if strings.Contains(line, what) {
				count[what]++
				break
			}
		}
	}
	events := 0
	for _, n := range w.outcome.Events {
		events += n
	}
	lines, answers := strings.Count(text.String(), "\n"), strings.Count(text.String(), " answers ")
	if count["#"]+count[" => "]+count[" event "]+count[" decides "] != lines {
		t.Errorf("of %d lines some are of no kind: %v", lines, count)
	}
	if count[" event "] != events || count[" => "] != w.frames || count[" decides "] == 0 || count[" decides "] > answers {
		t.Errorf("the record has %v, of %d events, %d frames and %d answers for a key", count, events, w.frames, answers)
	}
}

// readGolden returns the hash of each golden run by its name, KIND/SEED.
func readGolden(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, hash, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok {
			t.Fatalf("%s: %q is not KIND/SEED HASH", goldenFile, line)
		}
		out[name] = hash
	}
	if len(out) != goldenSeeds*int(goldenKinds) {
		t.Fatalf("%s has %d runs, want %d of each kind: write it with -rewrite", goldenFile, len(out), goldenSeeds)
	}
	return out
}

// writeRecord writes the record of a run into a file.
func writeRecord(t *testing.T, run, path string) {
	t.Helper()
	var name string
	var seed int
	if _, err := fmt.Sscanf(strings.Replace(run, "/", " ", 1), "%s %d", &name, &seed); err != nil || path == "" {
		t.Fatalf("-record %q -record-to %q: want KIND/SEED and a file", run, path)
	}
	for kind := range goldenKinds {
		if kind.String() != name {
			continue
		}
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		out := bufio.NewWriter(f)
		w := worldOf(kind, uint64(seed))
		w.record, w.remarks = out, true
		if err := w.play(kind, uint64(seed)); err != nil {
			t.Error(err) // the record says what led there
		}
		if err := out.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("-record %q: no kind of run is called %q", run, name)
}
