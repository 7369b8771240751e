-- Uses each command of the other scripts, so that an access list without one of them is found at once.
-- It returns the server's clock in ticks.
local k, h, z = KEYS[1], KEYS[2], KEYS[3]
redis.call('SET', k, '1', 'PX', '1000')
redis.call('SETRANGE', k, 0, '2')
redis.call('GETRANGE', k, 0, 0)
redis.call('GET', k)
redis.call('TYPE', k)
redis.call('PEXPIRE', k, '1000')
redis.call('PTTL', k)
redis.call('EXISTS', k)
redis.call('HSET', h, 'a', '1')
redis.call('HMGET', h, 'a')
redis.call('HLEN', h)
redis.call('ZADD', z, '1', 'a')
redis.call('ZCARD', z)
redis.call('ZRANGE', z, 0, 0)
redis.call('ZRANGEBYSCORE', z, '0', '1')
redis.call('ZREMRANGEBYSCORE', z, '0', '0')
redis.call('ZREM', z, 'a')
redis.call('DEL', h, z)
local t = redis.call('TIME')
return t[1] * 1000000 + t[2]
