-- Asks a node of Weir about each request: a hook of mod_lua, with Debian's lua-socket. The
-- modules lua and setenvif are loaded, and the server or virtual host has
--
--   SetEnvIf Request_URI ^ weir_node=127.0.0.1:8080
--   LuaScope thread
--   LuaHookAccessChecker /etc/apache2/weir.lua check
--
-- The node runs with --auth-proxy and the address of Apache. A request that the node does not
-- allow gets 429, or 503 if no node answers; "return apache2.DECLINED" there lets it pass.

local http = require "socket.http"
http.TIMEOUT = 1

function check(r)
  if not r.is_initial_req then
    return apache2.DECLINED -- it was asked about
  end
  local _, status, fields = http.request {
    url = "http://" .. r.subprocess_env["weir_node"] .. "/v1/auth",
    redirect = false,
    headers = {
      ["X-Original-URI"] = r.unparsed_uri,
      ["X-Original-Method"] = r.method,
      ["X-Forwarded-For"] = r.useragent_ip,
    },
  }
  local denied = status == 429 or status == 400 or status == 431 or status == 503 and fields["ratelimit"]
    or type(status) == "number" and status >= 400 and status < 500 and fields["x-weir-status"] -- of the request, such as by a rule with "deny"
  if status ~= 200 and not denied then
    r:err("weir: the node answers " .. tostring(status))
    return 503
  end
  for field, name in pairs { ["ratelimit"] = "RateLimit", ["ratelimit-policy"] = "RateLimit-Policy", ["retry-after"] = "Retry-After" } do
    if fields[field] then
      r.err_headers_out[name] = fields[field] -- those of headers_out are replaced by the upstream's
    end
  end
  if status == 200 then
    return apache2.DECLINED -- other modules may still refuse it
  end
  return status
end
