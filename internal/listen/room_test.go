package listen

import (
	"errors"
	"net/netip"
	"testing"
)

// TestRoom: what is large shares a bound and is refused beyond it; what is small is not
// counted; everything is given back.
func TestRoom(t *testing.T) {
	r := &Room{Most: 10 * FreeWeight}
	var a, b, small Hold
	a.Room, b.Room, small.Room = r, r, r
	if err := errors.Join(a.Add(FreeWeight), a.Add(7*FreeWeight)); err != nil || r.InUse() != 8*FreeWeight {
		t.Fatalf("%v, and %d is used", err, r.InUse())
	}
	if err := b.Add(3 * FreeWeight); !errors.Is(err, ErrRoom) {
		t.Errorf("beyond the bound: %v", err)
	}
	if err := small.Add(FreeWeight); err != nil {
		t.Errorf("a small message: %v", err)
	}
	b.Release()
	if err := b.Add(2 * FreeWeight); err != nil || r.InUse() != 10*FreeWeight {
		t.Errorf("up to the bound: %v, and %d is used", err, r.InUse())
	}
	for _, h := range []*Hold{&a, &b, &small, &b} {
		h.Release()
	}
	if r.InUse() != 0 {
		t.Errorf("%d is used by nobody", r.InUse())
	}
}

// TestShareOfRoom: while more than half of the room is used, an address that holds some
// gets its share only. One that holds nothing gets what there is.
func TestShareOfRoom(t *testing.T) {
	r := &Room{Most: 32 << 20}
	thief, honest, socket := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32"), netip.Prefix{}
	for _, c := range []struct {
		from netip.Prefix
		more int64
		want error
	}{
		{thief, 16 << 20, nil}, // the half
		{thief, 1, ErrRoomShare},
		{honest, 4 << 20, nil}, // as it holds nothing
		{honest, 1, ErrRoomShare},
		{socket, 3 << 20, nil}, // clients of a socket cannot be distinguished
		{socket, 3 << 20, nil},
		{socket, 32 << 20, ErrRoom},
	} {
		if err := r.Take(c.from, c.more); !errors.Is(err, c.want) {
			t.Errorf("%d bytes for %v: %v, want %v", c.more, c.from, err, c.want)
		}
	}
	r.Give(thief, 16<<20)
	if err := r.Take(honest, 1); err != nil {
		t.Errorf("less than half is used: %v", err)
	}
	r.Give(honest, 4<<20+1)
	r.Give(socket, 6<<20)
	if r.used != 0 || len(r.from) != 0 {
		t.Errorf("%d bytes are left, of %v", r.used, r.from)
	}
}
