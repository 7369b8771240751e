package front

import (
	"strings"
	"testing"
)

// The examples of the W3C's Baggage, and what is not one.
func TestBaggage(t *testing.T) {
	for _, x := range []struct{ fields, name, want string }{
		{"key1=value1;property1;property2, key2 = value2, key3=value3; propertyKey=propertyValue", "key1", "value1"},
		{"key1=value1;property1;property2, key2 = value2, key3=value3; propertyKey=propertyValue", "key2", "value2"},
		{"key1=value1;property1;property2, key2 = value2, key3=value3; propertyKey=propertyValue", "key3", "value3"},
		{"key1=value1;propertyKey=propertyValue", "propertyKey", ""},
		{"serverNode=DF%2028,userId=Am%C3%A9lie,isProduction=false", "userId", "Amélie"},
		{"serverNode=DF%2028,userId=Am%C3%A9lie,isProduction=false", "serverNode", "DF 28"},
		{"userId=alice\nserverNode=DF%2028,isProduction=false", "isProduction", "false"},
		{"a=1+1==2", "a", "1+1==2"},
		{"a=1,a=2", "a", "2"},
		{"a=%zz", "a", ""},
		{"a", "a", ""},
		{"A=1", "a", ""},
		{"", "a", ""},
		{"a=1," + strings.Repeat("x", maxBaggage-4), "a", "1"},
		{"a=1," + strings.Repeat("x", maxBaggage-3), "a", ""},
		{"a=1\n" + strings.Repeat("x", maxBaggage-2), "a", ""},
	} {
		if got := Baggage(strings.Split(x.fields, "\n"), x.name); got != x.want {
			t.Errorf("%s in %.90q is %q, not %q", x.name, x.fields, got, x.want)
		}
	}
}
