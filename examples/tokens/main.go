// Tokens is a proxy in front of a language model that holds each user to a budget of tokens a minute, and of money a
// month. It reserves what an answer may take before it asks the model, reserves more while the answer
// streams, and for longer, settles with the usage in the last event, and gives all back if the client hangs up.
// The model in it says "word0 word1 ..." and counts words.
//
//	go run ./examples/tokens
//	curl -N -H 'X-User: ada' -d '{"prompt": "how are you", "max_tokens": 40}' 127.0.0.1:8090
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/client"
)

// rules give each user 700 tokens a minute and 50 cents a month, in millionths of a dollar. The use of an
// answer that nobody settles, since the proxy died, stays charged.
const rules = `version: 1
rules:
  - name: tokens
    match: {path: ^/chat$}
    continue: true
    key: [user]
    cost: {from: "attr:tokens"}
    limits: [{limit: 700, window: 1m}]
    on_expiry: keep
  - name: money
    match: {path: ^/chat$}
    key: [user]
    cost: {from: "attr:udollars"}
    limits: [{limit: 500000, calendar: month}]
`

func main() {
	addr := flag.String("addr", "127.0.0.1:8090", "listen at `HOST:PORT`")
	nodes := flag.String("nodes", "",
		"keep the budget at the nodes `HOST:PORT,...`, which have such rules and --allow-refunds; default: in this process")
	ahead := flag.Int64("ahead", 20, "reserve so many `tokens` of an answer before they are said; 0: all of it")
	flag.Parse()
	b, err := open(*nodes)
	if err != nil {
		log.Fatal(err)
	}
	behind, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	pause := func(r *http.Request, _ int64) error { return sleep(r.Context(), 50*time.Millisecond) }
	go serve(behind, &model{words: 300, wait: pause})
	front, err := new(net.ListenConfig).Listen(context.Background(), "tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Print("ask http://", front.Addr())
	serve(front, &proxy{budget: b, model: "http://" + behind.Addr().String(), ahead: *ahead, sleep: sleep})
}

// open returns the budget at some nodes, or one in this process.
func open(nodes string) (budget, error) {
	if nodes == "" {
		return weir.Open(context.Background(), weir.Config{Rules: []byte(rules)})
	}
	return client.Open(client.Config{Addrs: strings.Split(nodes, ",")})
}

func serve(l net.Listener, h http.Handler) {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(s.Serve(l))
}
