package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	core "github.com/weirlimit/weir/internal/cluster"
	"github.com/weirlimit/weir/internal/peer"
	"github.com/weirlimit/weir/limiter"
)

// restore reads what the disk has into a core that has no view yet.
func (k *keeper) restore(c *core.Core) {
	if k == nil {
		return
	}
	k.disk = core.NewDisk(c)
	begun, seen, bad := time.Now(), instants{now: k.now()}, 0
	damages := k.store.Read(func(r *peer.Record) error {
		if taken, err := k.kept.restore(r); taken {
			return err
		}
		var err error
		if e := k.codec.Read(r.Data, func(f *peer.Frame) {
			if err = seen.take(limiter.Tick(r.At)); err == nil {
				r.Refused, err = k.disk.Restore(f, limiter.Tick(r.At), r.Keys)
			}
		}); e != nil {
			return e
		}
		return err
	})
	for _, d := range damages {
		if errors.Is(d, peer.ErrTorn) {
			k.m.log.Info("the data directory ends with what was being written, as after a power cut: nothing that was synced "+
				"is missing", "where", d)
			continue
		}
		if bad++; bad <= 20 {
			k.m.log.Error("a part of the data directory cannot be read: it is left out, and so is what builds on it",
				"error", d)
		}
	}
	if bad > 20 {
		k.m.log.Error("more parts of the data directory cannot be read", "parts", bad-20)
	}
	if seen.back {
		k.m.log.Error("the data directory has records of an instant that this member's clock cannot have shown: counters do "+
			"not go on from there", "more_than", farAhead.Duration())
	}
	k.filled = seen.last > 0
	k.watchClock(seen.last)
	if k.disk.Restored(len(damages) == 0) {
		k.mark(false)
	}
	k.m.log.Info("the data directory was read", "counters", k.m.Table.Stats().Keys, "damages", bad,
		"took", time.Since(begun).Round(time.Millisecond))
}

// instants are those of what a disk has. The clock of counters never goes back, so later records are no earlier, and
// what is far ahead of all others, and of the machine's clock, is an error or a forgery: nothing goes on from it. Of
// the first record nothing is known but the machine's clock, which may be behind by any time. So it is believed until
// a later record is far behind it.
type instants struct {
	now  limiter.Tick // of the machine
	last limiter.Tick // the clock of counters begins no earlier; 0: there is none
	back bool         // an earlier record was far ahead
}

const (
	farAhead = 366 * limiter.Day
	// lastInstant, in the year 2112, is until when counters are exact.
	lastInstant = limiter.Tick(1) << 52
)

// take takes in the instant of the next record. It returns an error if that cannot be true.
func (i *instants) take(at limiter.Tick) error {
	switch {
	case at < 0 || at > lastInstant:
		return fmt.Errorf("its instant, %d us after 1970, is out of range", at)
	case i.last != 0 && at > max(i.now, i.last)+farAhead:
		return fmt.Errorf("its instant, %v, is more than %v ahead of the records before it and of this machine's clock",
			at.Time(), farAhead.Duration())
	case i.last > max(i.now, at)+farAhead:
		i.last, i.back = at, true
	default:
		i.last = max(i.last, at)
	}
	return nil
}

// slowed is the clock of counters: the machine's, which it does not go behind. If it is ahead it goes on, a tenth
// slower, until the machine's has caught up. So no window begins twice, and a clock that was ahead by mistake does not
// stay so.
type slowed struct {
	machine func(now limiter.Tick) limiter.Tick // nil: it shows what the scheduler's shows
	ahead   limiter.Tick                        // at since
	since   limiter.Tick
}

// slower is the part of its speed that a clock loses that is ahead.
const slower = 10

// at returns what it shows when the scheduler's clock shows now.
func (c *slowed) at(now limiter.Tick) limiter.Tick {
	if c.machine != nil {
		now = c.machine(now)
	}
	if c.ahead == 0 {
		return now
	}
	return now + max(0, c.ahead-(now-c.since)/slower)
}

// watchClock lets the clock of counters begin no earlier than the last instant that the disk has: so no window begins
// twice, whatever the machine's clock shows.
func (k *keeper) watchClock(last limiter.Tick) {
	now := k.now() // it is not ahead yet
	switch behind := last - now; {
	case last == 0:
	case behind > 0:
		k.clock.ahead, k.clock.since = behind, now
		if behind > limiter.Second {
			k.m.log.Error("this machine's clock is behind what the data directory has: counters go on from there, so that "+
				"no window begins twice, and their clock runs a tenth slower until the machine's has caught up; if the machine's "+
				"clock is wrong, set it and restart this node", "behind", behind.Duration().Round(time.Millisecond),
				"last", last.Time(), "caught_up_in", (slower * behind).Duration().Round(time.Second))
		}
	case -behind > limiter.Hour:
		k.m.log.Warn("the data directory was written long ago: if this node was not down for so long, its clock went forward",
			"ago", (-behind).Duration().Round(time.Second), "last", last.Time())
	}
}

// emptied tells of partitions that start empty, which is to be expected where no directory had anything.
func (k *keeper) emptied(log *slog.Logger, partitions uint64) {
	const text = "partitions start empty: no member that is here has counters of them"
	switch {
	case k == nil:
		log.Debug(text, "partitions", partitions)
	case k.filled:
		log.Warn(text, "partitions", partitions)
	default:
		log.Info(text, "partitions", partitions)
	}
}

// recovered tells of partitions that go on from the best copy that is left. No member can know whether it is complete.
func (k *keeper) recovered(log *slog.Logger, partitions uint64) {
	lost := "charges that were not sent to another member yet"
	if k != nil {
		lost = "charges that were neither saved nor sent yet; none if all members were stopped in good order"
	}
	log.Warn("partitions have lost their owners and heirs: they continue from the best copies that are left, so nothing "+
		"is to be done", "partitions", partitions, "may_be_missing", lost)
}

// alone tells what becomes of the counters of a member that leaves as the last one.
func (k *keeper) alone(log *slog.Logger) {
	if k == nil {
		log.Warn("no other member can take over: this node's counters are lost")
		return
	}
	log.Info("no other member can take over: this node's counters go to its data directory")
}
