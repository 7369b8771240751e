package limitertest

import (
	"math/big"
	"math/rand/v2"
	"testing"
)

func (w wide) big() *big.Int {
	n := new(big.Int).Lsh(big.NewInt(w.hi), 64)
	return n.Add(n, new(big.Int).SetUint64(w.lo))
}

// The wide numbers compute as math/big does, for numbers of every length.
func TestWideNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	number := func() int64 { return int64(r.Uint64() >> (1 + r.UintN(63))) }
	same := func(what string, got wide, want *big.Int) {
		t.Helper()
		if got.big().Cmp(want) != 0 {
			t.Fatalf("%s: got %v, want %v", what, got.big(), want)
		}
	}
	for range 20_000 {
		a, b, c, d := number(), number(), number(), number()+1
		x, y := product(a, b), product(c, d)
		bx := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		by := new(big.Int).Mul(big.NewInt(c), big.NewInt(d))
		same("product", x, bx)
		same("plus", x.plus(y), new(big.Int).Add(bx, by))
		same("minus", x.minus(y), new(big.Int).Sub(bx, by))
		same("negative plus", x.minus(y).plus(y), bx)
		same("negative", wideOf(-a), big.NewInt(-a))
		quotient, rest := x.over(d)
		bq, br := new(big.Int).QuoRem(bx, big.NewInt(d), new(big.Int))
		same("over", quotient, bq)
		if rest != br.Int64() {
			t.Fatalf("rest: got %d, want %v", rest, br)
		}
		if want := bx.Cmp(by); x.less(y) != (want < 0) || x.atMost(y) != (want <= 0) {
			t.Fatalf("%v and %v are compared wrongly", bx, by)
		}
		if x.less(y) && (smaller(x, y) != x || larger(x, y) != y) {
			t.Fatalf("smaller and larger of %v and %v", bx, by)
		}
		if tripled := new(big.Int).Mul(bx, big.NewInt(3)); tripled.BitLen() < 128 {
			same("times", x.times(3), tripled)
		}
	}
}

// A product that does not fit causes an error, and no wrong number.
func TestWideProductTooLarge(t *testing.T) {
	for _, x := range []func(){
		func() { product(1<<62, 1<<62).times(16) },
		func() { product(1<<62, 1<<62).times(1 << 62) },
		func() { product(1, -1) },
		func() { wideOf(-1).times(1) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a product that does not fit was returned")
				}
			}()
			x()
		}()
	}
}
