package redisstore

import (
	"context"
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirlimit/weir/internal/redistest"
	"github.com/weirlimit/weir/limiter"
)

// The one function that all products go through returns quotient and rest exactly,
// where a double cannot hold the product and where division rounds up.
func TestMuldiv(t *testing.T) {
	socket := redistest.Start(t).Socket
	client := redis.NewClient(&redis.Options{Addr: socket, Protocol: 2, DisableIdentity: true, DialTimeout: time.Second})
	defer client.Close()
	ctx := context.Background()
	s, err := newScript([]string{"prelude"})
	if err != nil {
		t.Fatal(err)
	}
	text := s.text + `
local answer = {}
for i = 3, #head, 3 do
  local q, r = muldiv(head[i], head[i + 1], head[i + 2])
  answer[#answer + 1], answer[#answer + 2] = q, r
end
return answer`
	above, below := 0, 0
	for round := range uint64(40) {
		questions := hardQuestions(rand.New(rand.NewPCG(round, 26)), 1000)
		list := "[0,0"
		for _, q := range questions {
			list += fmt.Sprintf(",%d,%d,%d", q[0], q[1], q[2])
		}
		got, err := client.Eval(ctx, text, nil, list+"]").Int64Slice()
		if err != nil {
			t.Fatal(err)
		}
		for i, q := range questions {
			product := new(big.Int).Mul(big.NewInt(q[0]), big.NewInt(q[1]))
			want, rest := new(big.Int).DivMod(product, big.NewInt(q[2]), new(big.Int))
			if got[2*i] != want.Int64() || got[2*i+1] != rest.Int64() {
				t.Fatalf("%d * %d / %d is %d rest %d, want %s rest %s", q[0], q[1], q[2], got[2*i], got[2*i+1], want, rest)
			}
			switch guess := int64(float64(q[0]) * float64(q[1]) / float64(q[2])); {
			case guess > want.Int64():
				above++
			case guess < want.Int64():
				below++
			}
		}
	}
	if above < 100 || below < 10 {
		t.Errorf("division of doubles was off %d times upwards and %d times downwards; 100 and 10 were to be", above, below)
	}
}

// hardQuestions are factors and divisors within the bounds of muldiv, many of them
// with a product just below or above a multiple of the divisor.
func hardQuestions(r *rand.Rand, n int) (out [][3]int64) {
	for len(out) < n {
		d := wholeNumber(r)
		b := wholeNumber(r)
		// The largest a with a quotient below 2^53.
		most := new(big.Int).Div(new(big.Int).Mul(big.NewInt(d), big.NewInt(limiter.MaxUnits)), big.NewInt(b))
		if most.Cmp(big.NewInt(limiter.MaxUnits)) > 0 {
			most.SetInt64(limiter.MaxUnits)
		}
		if most.Int64() < 2 {
			continue
		}
		a := 1 + min(most.Int64()-1, wholeNumber(r)-1)
		if r.IntN(8) == 0 {
			a = most.Int64()
		}
		if r.IntN(2) == 0 {
			// The a at which a*b passes a multiple of d, or the one before.
			k := new(big.Int).Div(new(big.Int).Mul(big.NewInt(a), big.NewInt(b)), big.NewInt(d))
			a = min(most.Int64(), new(big.Int).Div(k.Mul(k, big.NewInt(d)), big.NewInt(b)).Int64()+r.Int64N(2))
		}
		out = append(out, [3]int64{a, b, d})
	}
	return out
}

// wholeNumber returns a number from 1 to 2^53-1, often close to a power of 2.
func wholeNumber(r *rand.Rand) int64 {
	n := int64(1) << (1 + r.IntN(53))
	switch r.IntN(4) {
	case 0:
		return n - 1
	case 1:
		return max(1, min(n/2+r.Int64N(3)-1, limiter.MaxUnits))
	default:
		return 1 + r.Int64N(n-1)
	}
}
