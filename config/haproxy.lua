-- haproxy.lua: which shard a request without one goes to, and how a request waits for its shard.
--
-- haproxy.cfg calls `least` for requests that name no session, and `hold` for requests whose shard is
-- away, has just failed, or does not stand in the session's id.  All other requests run no Lua.
-- A shard is a server of the backend `shards`; servers with a colon in the name lead to `hold`.

local HOLD_MS = 30000 -- how long a request waits for its shard
local POLL_MS = 50 -- between two looks at the shard's state
local PAUSE_MS = 100 -- before a shard that has failed, and is said to be up, is asked again; doubled each time
local HOPS = 7 -- a request passes `hold` so often
local FRESH_MS = 100 -- how old a look at all shards may be, where they are fewer than 50

local shards = {} -- { name, server, taken, seen, load }, in the order of names
local seen_all = 0
local turn = 0

local function now_ms()
    local now = core.now()
    return now.sec * 1000 + now.usec // 1000
end

-- A server's state ("UP", "NOLB" while a lame duck, "DOWN", "MAINT", "DRAIN") and its requests,
-- at most POLL_MS old.
local function look(shard)
    local now = now_ms()
    if now - shard.seen >= POLL_MS then
        local stats = shard.server:get_stats()
        shard.seen, shard.load = now, tonumber(stats.scur) or 0
        shard.serves = not (stats.status:find("^DOWN") or stats.status:find("^MAINT"))
        shard.ready = stats.status:find("^UP") ~= nil
    end
    return shard
end

core.register_init(function()
    for name, server in pairs(core.backends["shards"].servers) do
        if not name:find(":") then
            shards[#shards + 1] = { name = name, server = server, seen = 0, load = 0 }
        end
    end
    table.sort(shards, function(a, b) return a.name < b.name end)
end)

-- The ready shard with the fewest requests, of equal ones in turn; nil where none is ready.  What
-- was chosen since the last look at all of them counts as a request.
local function least()
    local now, best = now_ms(), nil
    if now - seen_all >= math.max(FRESH_MS, 2 * #shards) then
        seen_all = now
        for _, shard in ipairs(shards) do
            look(shard)
        end
    end
    turn = turn + 1
    for i = 1, #shards do
        local shard = shards[(turn + i) % #shards + 1]
        if shard.ready and (not best or shard.load < best.load) then
            best = shard
        end
    end
    if best then
        best.load = best.load + 1
    end
    return best
end

core.register_fetches("least", function()
    local shard = least()
    return shard and shard.name or ""
end)

-- The shard of an id that does not begin with a shard's name: the one with the largest hash of both.
local function hashed(txn, id)
    local best, largest
    for _, shard in ipairs(shards) do
        local hash = txn.c:xxh32(shard.name .. " " .. id)
        if not best or hash > largest then
            best, largest = shard, hash
        end
    end
    return best
end

local function named(name)
    for _, shard in ipairs(shards) do
        if shard.name == name then
            return shard
        end
    end
end

-- Waits until the request's shard serves; `txn.shard` then is its name, and `txn.found` is set.
core.register_action("hold", { "http-req" }, function(txn)
    local id = txn:get_var("txn.id")
    local hop = tonumber(txn.f:req_hdr("X-Attn-Held")) or 0
    local own = id and named(txn:get_var("txn.shard"))
    local shard = own or id and hashed(txn, id)
    local begun = now_ms()
    -- A shard that does serve was asked in vain, unless it is asked for the first time.
    local from = begun + ((own or hop > 0) and PAUSE_MS << hop or 0)
    if own and not look(own).serves then
        from = begun
    end
    while hop < HOPS and now_ms() - begun < HOLD_MS do
        local chosen = id and look(shard).serves and shard or not id and least()
        if chosen and now_ms() >= from then
            txn:set_var("txn.shard", chosen.name)
            txn:set_var("txn.found", true)
            txn.http:req_set_header("X-Attn-Held", tostring(hop + 1))
            return
        end
        core.msleep(POLL_MS)
    end
end, 0)
