-- haproxy.lua: where a request without a session goes, and how a request waits for its shard.
--
-- haproxy.cfg calls `least` for requests that name no session, and `hold` for requests whose shard
-- is away or has just failed.  All other requests run no Lua.  A shard is a server of the backend
-- `shards`; servers with a colon in the name lead to `hold`.

local HOLD_MS = 30000 -- how long a request waits for its shard
local POLL_MS = 50 -- between two looks at a shard's state
local PAUSE_MS = 100 -- before a shard that has failed and is said to be up is asked again; doubled
local HOPS = 7 -- how often that is done

local shards, by_name = {}, {} -- { name, server, seen, load, serves, ready }

local function now_ms()
    local now = core.now()
    return now.sec * 1000 + now.usec // 1000
end

core.register_init(function()
    for name, server in pairs(core.backends["shards"].servers) do
        if not name:find(":") then
            by_name[name] = { name = name, server = server, seen = 0 }
            table.insert(shards, by_name[name])
        end
    end
end)

-- The shard with what HAProxy knew of it POLL_MS ago or less (of n shards n ms): whether it serves
-- its sessions, whether it is ready for new ones too, which a lame duck (NOLB) is not, and how many
-- requests it has.
local function look(shard)
    local now = now_ms()
    if now - shard.seen >= math.max(POLL_MS, #shards) then
        local stats = shard.server:get_stats()
        shard.seen, shard.load = now, tonumber(stats.scur) or 0
        shard.serves = not (stats.status:find("^DOWN") or stats.status:find("^MAINT"))
        shard.ready = stats.status:find("^UP") ~= nil
    end
    return shard
end

-- The ready shard with the fewest requests, of equal ones any; nil where none is ready.  What was
-- sent there since the last look counts.
local function least()
    local best
    local from = math.random(#shards)
    for i = from, from + #shards - 1 do
        local shard = look(shards[i % #shards + 1])
        if shard.ready and (not best or shard.load < best.load) then
            best = shard
        end
    end
    if best then
        best.load = best.load + 1
    end
    return best
end

-- Whether a reload has replaced this process, which then checks no shard any more.
local stopping = { seen = 0 }
local function is_stopping()
    if now_ms() - stopping.seen >= POLL_MS then
        stopping.seen, stopping.is = now_ms(), tonumber(core.get_info()["Stopping"]) == 1
    end
    return stopping.is
end

core.register_fetches("least", function()
    local shard = least()
    return shard and shard.name or ""
end)

-- Waits until the request's shard serves: `txn.shard` then is its name, and `txn.found` is set.
-- `txn.unknown` is set of an id that begins with no shard's name.  After a reload the client is told
-- at once to come again: the new process knows when the shard serves.
core.register_action("hold", { "http-req" }, function(txn)
    local own = by_name[txn:get_var("txn.shard")]
    local hop = tonumber(txn.f:req_hdr("X-Attn-Held")) or 0
    local begun, pause = now_ms(), 0
    if txn:get_var("txn.id") and not own then
        txn:set_var("txn.unknown", true)
        return
    end
    if own and look(own).serves then -- it was asked, in vain
        pause = PAUSE_MS << hop
    end
    local function choose()
        if own then
            return look(own).serves and own
        end
        return least()
    end
    while hop < HOPS and now_ms() - begun < HOLD_MS and not is_stopping() do
        local shard = now_ms() - begun >= pause and choose()
        if shard then
            txn:set_var("txn.shard", shard.name)
            txn:set_var("txn.found", true)
            txn.http:req_set_header("X-Attn-Held", tostring(hop + 1))
            return
        end
        core.msleep(POLL_MS)
    end
end, 0)
