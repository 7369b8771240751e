package table

import (
	"fmt"
	"math/bits"

	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/limiter/arith"
)

// ID is a remembered id in the form that nodes exchange, like an [Entry].
type ID struct {
	Hi, Lo uint64
	State  arith.State
}

// ImportIDs is [Table.ReplaceKey] for each of some ids that another node has sent, whose number is from, see
// [Table.Source]. After an error those before have been imported.
func (t *Table) ImportIDs(part int, now limiter.Tick, from uint8, ids []ID) error {
	p, err := t.partition(part)
	of, number := arith.NameID(t.ids.limit), part%Partitions
	for err == nil && len(ids) > 0 {
		n := 0
		p.changed(now, func(p *partition) outcome {
			for ; n < len(ids); n++ {
				in, state := &ids[n], ids[n].State
				if at, _ := bits.Mul64(in.Lo^of, Partitions); int(at) != number || !arith.ImportID(&state, now) {
					err = fmt.Errorf("%w: an id of partition %d, which is to be in %d, or contradicts itself", limiter.ErrInvalid, at,
						number)
					break
				}
				if !p.putID(t.order.of(in.Hi), in.Lo, state, from, now) {
					break
				}
			}
			return decided
		})
		if err != nil || n == len(ids) {
			break
		}
		e := Entry{Hi: ids[n].Hi, Lo: ids[n].Lo, Limit: t.ids.limit, State: ids[n].State, From: from}
		err = t.ReplaceKey(part, e.Hi, now, []Entry{e}) // it makes room
		ids = ids[n+1:]
	}
	return err
}
