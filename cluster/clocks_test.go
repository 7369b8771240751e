package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirlimit/weir"
)

// A node reads its machine's clock at its start, so who sees another clock is told that setting it is not all.
func TestAnotherClockIsToldWithTheRestart(t *testing.T) {
	var log syncBuffer
	ahead := memberConfig("node-2", hundred)
	ahead.Now = func() time.Time { return time.Now().Add(time.Minute) }
	second := open(t, ahead)
	config := memberConfig("node-1", hundred, gossipAddr(second))
	config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	first := open(t, config)
	together(t, []*weir.Node{first, second})
	user := 0
	until(t, "it warns of the clock", func() bool {
		user++
		_, err := first.Check(context.Background(), weir.Request{Path: "/towns", User: fmt.Sprint("user", user)})
		return err == nil && strings.Contains(log.String(), "the clock of another member differs")
	})
	if says := log.String(); !strings.Contains(says, "then restart a node that started with a wrong one") {
		t.Errorf("it says %s", says)
	}
}
