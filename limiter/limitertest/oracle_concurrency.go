package limitertest

// concurrencyModel: the units of all leases that have not ended + n <= limit. A charge without a
// hold is a lease that has ended.
type concurrencyModel struct {
	limit  uint64
	leases []*lease
}

type lease struct {
	units uint64
	end   Tick
}

func (m *concurrencyModel) admits(n uint64, now Tick) bool {
	sum := n
	for _, l := range m.leases {
		if l.end > now {
			sum += l.units
		}
	}
	return sum <= m.limit
}

func (m *concurrencyModel) charge(n uint64, now Tick) {
	m.leases = append(m.leases, &lease{n, now})
}

func (*concurrencyModel) refund(uint64, uint64, Tick, Tick, bool) {} // holds end their leases

// last returns the lease of the latest charge.
func (m *concurrencyModel) last() *lease { return m.leases[len(m.leases)-1] }
