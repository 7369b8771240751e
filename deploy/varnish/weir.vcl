# Asks a node of Weir about each request (tested with Varnish 7.1). In your VCL, before your own
# subroutines and after a backend with the address of the node:
#
#   backend weir { .host = "127.0.0.1"; .port = "8080"; }
#   include "/etc/varnish/weir.vcl";
#
# The node runs with --auth-proxy and the address of Varnish. A request goes to the node
# first. If it may pass, it is begun again, and goes the way that your subroutines say, also
# to the cache. A denial, and 503 while no node answers, reach the client as they are. To let
# requests pass while no node answers, write after the include:
#
#   sub vcl_backend_error { set beresp.http.X-Weir-Open = "yes"; }
#
# Several nodes, of which the first that is healthy is asked (with "import directors;" at the top):
#
#   probe ready { .url = "/readyz"; .interval = 1s; }
#   backend weir { .host = "10.0.0.1"; .port = "8080"; .probe = ready; .connect_timeout = 1s; }
#   backend weir2 { .host = "10.0.0.2"; .port = "8080"; .probe = ready; .connect_timeout = 1s; }
#   sub vcl_init {
#     new nodes = directors.fallback();
#     nodes.add_backend(weir);
#     nodes.add_backend(weir2);
#   }
#   include "/etc/varnish/weir.vcl";
#   sub vcl_backend_fetch { if (bereq.backend == weir) { set bereq.backend = nodes.backend(); } }
#
# Bodies of requests are kept meanwhile, so they have at most 1 MB: longer ones are refused
# (413, and the connection closes).
#
# Varnish has room for 64 lines of a request's header, its own among them. A request with more fields
# than it and this file leave, about 50, is refused (431), and one with more than about 57 by Varnish
# itself (400). Start varnishd with -p http_max_hdr=128 where clients send so many.

import std;

sub vcl_recv {
  if (req.restarts == 0) {
    if (!std.cache_req_body(1MB)) {
      return (synth(413));
    }
    # These fields are the proxy's: what a client sends in them is overwritten.
    set req.http.X-Weir = "ask";
    set req.http.X-Weir-Uri = req.url;
    set req.http.X-Weir-Method = req.method;
    set req.http.X-Weir-Address = client.ip;
    # Varnish makes a failure of an answer to a Range that it cannot read.
    unset req.http.X-Weir-Range;
    if (req.http.Range) {
      set req.http.X-Weir-Range = req.http.Range;
      unset req.http.Range;
    }
    # All fields that are set later have their room now: Varnish loses what finds none.
    set req.http.X-Weir-Limits = "";
    set req.http.X-Weir-Policy = "";
    set req.url = "/v1/auth";
    set req.method = "GET";
    return (pass);
  }
  if (req.http.X-Weir == "passed" && req.http.X-Weir-Uri) {
    set req.url = req.http.X-Weir-Uri;
    set req.method = req.http.X-Weir-Method;
    if (req.http.X-Weir-Range) {
      set req.http.Range = req.http.X-Weir-Range;
    }
    unset req.http.X-Weir-Range;
    unset req.http.X-Weir-Uri;
    unset req.http.X-Weir-Method;
    unset req.http.X-Weir-Address;
  }
}

sub vcl_backend_fetch {
  unset bereq.http.X-Weir-Range;
  unset bereq.http.X-Weir-Limits;
  unset bereq.http.X-Weir-Policy;
  if (bereq.http.X-Weir == "ask") {
    set bereq.backend = weir;
    set bereq.http.X-Original-URI = bereq.http.X-Weir-Uri;
    unset bereq.http.X-Weir-Uri;
    set bereq.http.X-Original-Method = bereq.http.X-Weir-Method;
    set bereq.http.X-Forwarded-For = bereq.http.X-Weir-Address;
    unset bereq.http.Authorization;
    unset bereq.http.Cookie;
    unset bereq.body;
  }
  unset bereq.http.X-Weir;
  unset bereq.http.X-Weir-Uri;
  unset bereq.http.X-Weir-Method;
  unset bereq.http.X-Weir-Address;
}

sub vcl_synth {
  # The first time, only the subroutine above can fail, as it has no room for its fields.
  if (req.restarts == 0 && resp.reason == "VCL failed") {
    set resp.status = 431;
    set resp.reason = "Request Header Fields Too Large";
  }
}

sub vcl_deliver {
  if (req.http.X-Weir == "ask") {
    if (resp.status != 200 && !resp.http.X-Weir-Open) {
      return (deliver);
    }
    set req.http.X-Weir = "passed";
    set req.http.X-Weir-Limits = resp.http.RateLimit;
    set req.http.X-Weir-Policy = resp.http.RateLimit-Policy;
    return (restart);
  }
  unset resp.http.X-Weir-Open;
  if (req.http.X-Weir-Limits && req.http.X-Weir-Limits != "") {
    set resp.http.RateLimit = req.http.X-Weir-Limits;
    set resp.http.RateLimit-Policy = req.http.X-Weir-Policy;
  }
}
