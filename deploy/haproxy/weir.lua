-- Asks a node of Weir about a request. In the global section:
--
--   lua-load-per-thread weir.lua
--
-- In a frontend, with the address of the node:
--
--   http-request set-var(txn.weir_node) str(127.0.0.1:8080)
--   http-request lua.weir
--   http-request return status 400 if { var(txn.weir) -m str denied } { var(txn.weir_status) -m int 400 }
--   http-request return status 503 if { var(txn.weir) -m str denied } { var(txn.weir_status) -m int 503 }
--   http-request return status 429 content-type "application/problem+json" lf-string "%[var(txn.weir_body)]" hdr Retry-After "%[var(txn.weir_retry)]" hdr RateLimit "%[var(txn.weir_ratelimit)]" if { var(txn.weir) -m str denied } { var(txn.weir_status) -m int 429 }
--   http-request return status 403 if { var(txn.weir) -m str denied }
--   http-request return status 503 unless { var(txn.weir) -m str allowed }
--   http-response set-header RateLimit "%[var(txn.weir_ratelimit)]" if { var(txn.weir_ratelimit) -m found }
--
-- The node runs with --auth-proxy and the address of HAProxy. The variable txn.weir is
-- "allowed", "denied", or "failed" if no node answered; leave the rule with "unless" out to let
-- requests pass then. A request that is not valid, such as one with a path that servers read in two
-- ways, is denied with txn.weir_status 400: its client must not be able to have it pass uncounted.
-- HAProxy returns only a status that is written down: that of a rule with "deny: {status: 410}" is 403, until a
-- line like that for 400 says 410.

-- The longest path that a node counts. A longer one may not fit the buffer of a question.
local longest = 8192

local function first(headers, name)
  local values = headers and headers[name]
  return values and values[0]
end

local function deny(txn, status, body, retry)
  txn:set_var("txn.weir", "denied")
  txn:set_var("txn.weir_status", status)
  txn:set_var("txn.weir_body", body)
  txn:set_var("txn.weir_retry", retry)
end

core.register_action("weir", { "http-req" }, function(txn)
  local path = txn.sf:pathq():match("^[^?]*") -- no rule counts by the query
  if #path > longest then
    return deny(txn, 400, "", "1")
  end
  local asked = core.httpclient():get({
    url = "http://" .. txn:get_var("txn.weir_node") .. "/v1/auth",
    headers = {
      ["x-original-uri"] = { path },
      ["x-original-method"] = { txn.sf:method() },
      ["x-forwarded-for"] = { txn.sf:src() },
    },
    timeout = 1000,
  })
  local status = asked and asked.status or 0
  if status == 200 then
    txn:set_var("txn.weir", "allowed")
  elseif status == 429 or status == 400 or status == 431 or status == 503 and first(asked.headers, "ratelimit")
    or status >= 400 and status < 500 and first(asked.headers, "x-weir-status") then -- the last: of the request, such as by a rule with "deny"
    deny(txn, status == 431 and 400 or status, asked.body or "", first(asked.headers, "retry-after") or "1")
  else
    txn:set_var("txn.weir", "failed")
  end
  local rest = asked and first(asked.headers, "ratelimit")
  if rest then
    txn:set_var("txn.weir_ratelimit", rest)
  end
end)
