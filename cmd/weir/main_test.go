package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// program is the built tool; these tests run it as a process of its own.
var program string

func TestMain(m *testing.M) {
	if len(os.Args) == 0 {
		main() // never: it links the program in, so that no result is cached from before a change
	}
	os.Exit(buildAndRun(m))
}

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "weir")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if out, err := exec.CommandContext(context.Background(), "go", "build", "-o", program,
		".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
		return 1
	}
	return m.Run()
}

// weir runs the program to its end.
func weir(t *testing.T, stdin string, args ...string) (cmd *exec.Cmd, out, errs string) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), program, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd, stdout.String(), stderr.String()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	full := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(full, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return full
}

const rulesText = `version: 1
rules:
  - {name: all, match: {path: "^/"}, key: [ip], limits: [{limit: 2, window: 1m, algorithm: fixed_window}]}
`

const logText = `10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /a HTTP/1.1" 200 1 "-" "x"
10.0.0.1 - - [17/May/2015:10:05:04 +0000] "GET /b HTTP/1.1" 200 1 "-" "x"
10.0.0.1 - - [17/May/2015:10:05:05 +0000] "GET /c HTTP/1.1" 200 1 "-" "x"
10.0.0.2 - - [17/May/2015:10:05:06 +0000] "GET /d HT`

func TestProcess(t *testing.T) {
	rules, log := write(t, "rules.yaml", rulesText), write(t, "access.log", logText)
	bad := write(t, "bad.yaml", "version: 1\nrules:\n  - {name: a}\n  - {name: b}\n")
	for name, c := range map[string]struct {
		args   []string
		stdin  string
		status int
		out    string
		err    string
	}{
		"replay":          {[]string{"replay", "--rules", rules, log}, "", 0, "\ndenied\t1\n", ""},
		"replay of stdin": {[]string{"replay", "--rules", rules, "-"}, logText, 0, "\ndenied\t1\n", ""},
		"validate":        {[]string{"validate", rules}, "", 0, "OK: 1 rule, 1 limit", ""},
		"check":           {[]string{"check", "/a", "--ip", "10.0.0.1", "--rules", rules}, "", 0, "allowed by rule all", ""},
		"denied": {[]string{"check", "/a", "--ip", "10.0.0.1", "--rules", rules, "--times", "3", "--at",
			"2026-01-01"}, "", 3, "denied by all/minute", ""},
		"version":         {[]string{"version"}, "", 0, "weir ", ""},
		"help":            {[]string{"--help"}, "", 0, "replay", ""},
		"invalid rules":   {[]string{"replay", "--rules", bad, log}, "", 1, "", bad + ":4:"},
		"invalid file":    {[]string{"validate", bad}, "", 1, "", bad + ":3:"},
		"no such log":     {[]string{"replay", "--rules", rules, log + ".gone"}, "", 1, "", "weir: log "},
		"a directory":     {[]string{"replay", "--rules", rules, t.TempDir()}, "", 1, "", "is a directory"},
		"unknown flag":    {[]string{"replay", "--rulez", rules, log}, "", 2, "", "did you mean --rules?"},
		"unknown command": {[]string{"reply"}, "", 2, "", `did you mean "replay"?`},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, out, errs := weir(t, c.stdin, c.args...)
			if got := cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("exit status %d, want %d", got, c.status)
			}
			if !strings.Contains(out, c.out) || c.out == "" && out != "" {
				t.Errorf("standard output: %q", out)
			}
			if !strings.Contains(errs, c.err) || c.err == "" && errs != "" {
				t.Errorf("standard error: %q", errs)
			}
			if strings.Contains(out+errs, "\x1b") || strings.Contains(errs, "goroutine") {
				t.Errorf("off a terminal: %q, %q", out, errs)
			}
		})
	}
}

// realLog returns the name of a real access log, which is next to the repository and
// not in it. If it is missing the test is skipped with a message.
func realLog(t *testing.T) string {
	t.Helper()
	shared := filepath.Join("..", "..", "..", "shared")
	log := filepath.Join(shared, "data", "access-combined.log")
	_, err := os.Stat(log)
	if err == nil {
		return log
	}
	if _, noShared := os.Stat(shared); noShared == nil && os.Getenv("CI") == "true" {
		t.Fatalf("the real access log is missing: %v", err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	t.Logf("NOT TESTED on real input: there is no %s", log)
	t.Skip("the real access log is absent")
	return ""
}

// The figures that awk finds in the real log: 10,000 requests of 1,753 clients, of
// which the busiest has 482.
func TestProcessOnARealLog(t *testing.T) {
	log := realLog(t)
	rules := write(t, "rules.yaml", `version: 1
rules:
  - {name: all, match: {path: "^/"}, key: [ip], limits: [{limit: 1, window: 300d, algorithm: fixed_window}]}
`)
	cmd, out, errs := weir(t, "", "replay", "--json", "--rules", rules, log)
	var report struct {
		Requests     int     `json:"requests"`
		Allowed      int     `json:"allowed"`
		Denied       int     `json:"denied"`
		Unmatched    int     `json:"unmatched"`
		SkippedLines int     `json:"skipped_lines"`
		Seconds      float64 `json:"seconds"`
		TopDenied    []struct {
			Key    string `json:"key"`
			Denied int    `json:"denied"`
		} `json:"top_denied"`
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || errs != "" {
		t.Fatalf("%v: %s%s", err, out, errs)
	}
	if report.Requests != 10_000 || report.Allowed != 1_753 || report.Denied != 10_000-1_753 || report.Unmatched != 0 ||
		report.SkippedLines != 0 {
		t.Errorf("%+v", report)
	}
	if len(report.TopDenied) != 10 || report.TopDenied[0].Key != "66.249.73.135:300d" ||
		report.TopDenied[0].Denied != 481 {
		t.Errorf("top: %+v", report.TopDenied)
	}
	t.Logf("%.0f ms of CPU, %.3f s by its own clock",
		1e3*(cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()).Seconds(), report.Seconds)
}

// What is there speaks first, as a node's gRPC does: the error is one line, and no library adds another.
func TestNothingElseIsSaid(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00")) // SETTINGS of HTTP/2
			go func() {
				_, _ = c.Read(make([]byte, 1)) // until it asks
				_ = c.Close()
			}()
		}
	}()
	for range 5 {
		if _, _, said := weir(t, "", "members", "--server", l.Addr().String()); strings.Count(said, "\n") != 1 ||
			!strings.HasPrefix(said, "weir: node http://") {
			t.Fatalf("%q", said)
		}
	}
}
