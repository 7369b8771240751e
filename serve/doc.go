// Package serve joins a node with its metrics and its servers, as the node program has
// them, for programs that embed a node:
//
//	s, err := serve.Open(ctx, serve.Config{Node: weir.Config{Rules: file, Cluster: &cluster.Config{...}}})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	if err := s.Node().WaitReady(ctx); err != nil {
//		return err
//	}
//	mux.Handle("/v1/", s.Handler())                     // checks, for clients
//	go operators.ListenAndServe()                       // an http.Server with the handler s.Admin()
//	failed := make(chan error, 1)
//	go func() { failed <- s.Serve(grpcListener, nil) }() // or gRPC, on a listener of its own
//	...
//	select {
//	case err := <-failed: // the listener failed: s serves nothing any more
//		return err // and s.Close runs
//	case <-ctx.Done():
//	}
//	ending, cancel := context.WithTimeout(context.Background(), 20*time.Second)
//	defer cancel()
//	return s.Shutdown(ending, clients.Shutdown, operators.Shutdown) // the http.Servers of the handlers
//
// For clients and operators nothing listens that the program does not serve. A member of a
// cluster does listen for other members, from [Open] on: see PeerAddr and GossipAddr of its
// cluster.Config. The node is used as any other, through [Service.Node].
package serve
