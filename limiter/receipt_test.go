package limiter_test

import (
	"reflect"
	"testing"

	"github.com/weirlimit/weir/limiter"
)

// Whoever holds a receipt can keep it and give it back. Nothing of it can be read or set but its sealed text.
func TestReceiptsAreOpaque(t *testing.T) {
	of := reflect.TypeFor[limiter.Receipt]()
	for i := range of.NumField() {
		if f := of.Field(i); f.IsExported() {
			t.Errorf("its holder can reach field %s", f.Name)
		}
	}
	if of = reflect.TypeFor[*limiter.Receipt](); of.NumMethod() != 1 || of.Method(0).Name != "Sealed" {
		t.Errorf("it has %d methods, the first is %s", of.NumMethod(), of.Method(0).Name)
	}
	r := limiter.SealedReceipt("AQ")
	if r.Sealed() != "AQ" || r != limiter.SealedReceipt("AQ") || r == (limiter.Receipt{}) {
		t.Errorf("a sealed receipt is %q", r.Sealed())
	}
	if c := limiter.Credit(); c.Sealed() != "" || c == (limiter.Receipt{}) {
		t.Errorf("a credit is %+v", c)
	}
}
