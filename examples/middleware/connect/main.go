// Connect limits the rates of a service that connect-go serves, whether it is asked by
// Connect, gRPC or gRPC-Web.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/limiter"
	"github.com/weirlimit/weir/middleware/grpclimit"
	"github.com/weirlimit/weir/middleware/httplimit"
)

// Rules are the rules of the service. The path of a call is that of its procedure.
const Rules = `
version: 1
rules:
  - name: towns
    match: {path: "^/towns.v1.Towns/"}
    key: [path, user]
    limits: [{limit: 2, window: minute, algorithm: fixed_window}]
`

// procedure is the one of the service. A service with a definition has handlers that
// protoc-gen-connect-go makes.
const procedure = "/towns.v1.Towns/Get"

func main() {
	node, err := weir.Open(context.Background(), weir.Config{Rules: []byte(Rules)})
	if err != nil {
		log.Fatal(err)
	}
	app, err := routes(node)
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Addr: "127.0.0.1:8090", Handler: app, ReadHeaderTimeout: 5 * time.Second}
	log.Print("post JSON, such as \"ulm\", to http://", server.Addr, procedure)
	log.Fatal(server.ListenAndServe())
}

// routes returns the service. The limiter stands around its handlers, so calls and the
// openings of streams are limited before anything of them is read. The denial is written
// in the protocol of the call.
func routes(d httplimit.Decider) (http.Handler, error) {
	writer := connect.NewErrorWriter()
	limit, err := httplimit.New(d,
		httplimit.User(httplimit.FromHeader("X-User")),
		httplimit.OnDenied(func(w http.ResponseWriter, r *http.Request, d *limiter.Decision) {
			_ = writer.Write(w, r, denial(d)) // it fails only where the caller is gone
		}))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle(procedure, connect.NewUnaryHandler(procedure, get))
	return limit(mux), nil
}

// denial returns the error of a denial, with the details that it has in gRPC.
func denial(d *limiter.Decision) error {
	st := status.Convert(grpclimit.Denial(d))
	out := connect.NewError(connect.Code(st.Code()), errors.New(st.Message()))
	for _, packed := range st.Proto().GetDetails() {
		if detail, err := connect.NewErrorDetail(packed); err == nil {
			out.AddDetail(detail)
		}
	}
	return out
}

func get(_ context.Context, r *connect.Request[wrapperspb.StringValue]) (*connect.Response[wrapperspb.StringValue],
	error) {
	return connect.NewResponse(wrapperspb.String("a fine town: " + r.Msg.GetValue())), nil
}
