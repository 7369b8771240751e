-- Asks a node of Weir about a request, with nginx's Lua module. It needs the location
-- /_weir_lua, which is /_weir of weir.conf without "?deny=403"; proxy_pass_request_headers off belongs to it:
--
--   access_by_lua_block { require("weir").check() }
--
-- A denial ends the request with the node's status, fields and body. While no node answers,
-- check lets requests pass if its argument is true, and else ends them with 503.
local weir = {}

local passed_on = {
  "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Retry-After", "Content-Type",
}

-- field returns a header field of an answer, however its name is written.
local function field(answer, name)
  for key, value in pairs(answer.header) do
    if key:lower() == name:lower() then
      return value
    end
  end
end

function weir.check(fail_open)
  local answer = ngx.location.capture("/_weir_lua")
  if answer.status >= 500 and not field(answer, "RateLimit") then
    if fail_open then
      return
    end
    return ngx.exit(ngx.HTTP_SERVICE_UNAVAILABLE)
  end
  for _, name in ipairs(passed_on) do
    if answer.status ~= ngx.HTTP_OK or name ~= "Content-Type" then
      ngx.header[name] = field(answer, name)
    end
  end
  if answer.status ~= ngx.HTTP_OK then
    ngx.status = answer.status
    ngx.print(answer.body)
    return ngx.exit(answer.status)
  end
end

return weir
