package cluster_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/cluster"
)

// TestMembersAnswerQuestions: a question reaches every member in reach, who answers with its own
// words; one that is dead is named as missing, and news reach all.
func TestMembersAnswerQuestions(t *testing.T) {
	var mu sync.Mutex
	heard, met := map[string]string{}, map[string]bool{}
	var notes []*cluster.Notes
	nodes := threeWith(t, "rules: []\n", nil, func(c *weir.Config) {
		name := part(*c).Name
		n := &cluster.Notes{
			Answer: func(question []byte) []byte { return []byte(name + " heard " + string(question)) },
			Told: func(from string, news []byte) {
				mu.Lock()
				defer mu.Unlock()
				heard[name] = from + ": " + string(news)
			},
			Met: func(member string) {
				mu.Lock()
				defer mu.Unlock()
				met[name+" "+member] = true
			},
		}
		notes = append(notes, n)
		part(*c).Notes = n
	})
	ask := func(within time.Duration, text string) []cluster.NoteAnswer {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		out, err := notes[0].Ask(ctx, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	out := ask(soon, "hello")
	if len(out) != 2 || !strings.HasSuffix(string(out[0].Answer), " heard hello") ||
		!strings.HasPrefix(string(out[1].Answer), out[1].Member+" ") {
		t.Fatalf("the members answer %+v", out)
	}
	long := strings.Repeat("x", cluster.MaxNoteBytes-100)
	if out := ask(soon, long); len(out) != 2 || len(out[0].Answer) < len(long) || len(out[1].Answer) < len(long) {
		t.Fatal("a long question is not answered")
	}
	notes[0].Tell([]byte("news"))
	until(t, "all have heard the news, and met each other", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(heard) == 2 && len(met) == 6
	})
	for who, text := range heard {
		if !strings.HasSuffix(text, ": news") {
			t.Errorf("%s has heard %q", who, text)
		}
	}
	if err := nodes[2].Close(); err != nil {
		t.Fatal(err)
	}
	until(t, "the one that is gone is named as missing", func() bool {
		out := ask(time.Second, "again") // a question to the one that is just going waits for its time
		return len(out) == 2 && slices.ContainsFunc(out, func(a cluster.NoteAnswer) bool {
			return a.Answer == nil && a.Why == "it is dead"
		})
	})
}

// TestSilentMemberIsNotAwaited: a member that gives no answer is missing when the context ends.
func TestSilentMemberIsNotAwaited(t *testing.T) {
	var notes []*cluster.Notes
	threeWith(t, "rules: []\n", nil, func(c *weir.Config) {
		n := new(cluster.Notes)
		notes = append(notes, n)
		part(*c).Notes = n
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	out, err := notes[0].Ask(ctx, []byte("hello"))
	if err != nil || len(out) != 2 || out[0].Why != "it did not answer in time" {
		t.Errorf("silent members: %+v, %v", out, err)
	}
	if _, err := new(cluster.Notes).Ask(t.Context(), nil); err == nil {
		t.Error("a question without a member is answered")
	}
}
