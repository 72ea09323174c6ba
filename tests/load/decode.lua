-- decode.lua: wrk script: as many sessions as connections, each decoding one row at a time.
--
-- Arguments after `--`: the model's width, the number of connections, a prefix that makes the
-- session ids of this run new, the model's name where there are several, else "", and names of
-- shards, with one of which each id then begins.  Run wrk with one thread (-t1).
--
-- wrk does not say which connection a request is for, so a free list keeps each session to one
-- request at a time: request() takes a session, response() gives it back by the id in the reply.  A
-- session lives for `steps` rows, is deleted, and starts again under a new name.
local steps = 256
local deleting, by_name = {}, {}
local free, first, last = {}, 1, 0 -- a queue: free[first..last]
local prefix, tail
local shards = {}
local refused = 0

local function push(session)
    last = last + 1
    free[last] = session
end

local function renew(session)
    if session.name then
        by_name[session.name] = nil
    end
    session.life = session.life + 1
    session.done = 0
    local shard = shards[session.number % math.max(#shards, 1) + 1]
    local name = prefix .. "-" .. session.number .. "-" .. session.life
    session.name = shard and shard .. "." .. name or name
    by_name[session.name] = session
    session.headers = { ["X-Session-Id"] = session.name } -- by which a proxy routes
    for name, value in pairs(wrk.headers) do
        session.headers[name] = value
    end
    push(session)
end

function init(args)
    local width, connections = tonumber(args[1]), tonumber(args[2])
    prefix = args[3]
    math.randomseed(7)
    local row = {}
    for i = 1, width do
        row[i] = string.format("%.7f", math.random() * 2 - 1)
    end
    for i = 5, #args do
        shards[#shards + 1] = args[i]
    end
    local model = (args[4] or "") ~= "" and '","model":"' .. args[4] or ""
    tail = model .. '","hidden_states":[' .. table.concat(row, ",") .. "]"
    wrk.headers["Content-Type"] = "application/json"
    for i = 1, connections do
        renew({ number = i, life = 0 })
    end
    number = connections
end

function request()
    if first > last then -- wrk builds one request more than it sends, to inspect it
        number = number + 1
        renew({ number = number, life = 0 })
    end
    local session = free[first]
    free[first] = nil
    first = first + 1
    if session.done == steps then
        deleting[#deleting + 1] = session
        return wrk.format("DELETE", "/sessions/" .. session.name, session.headers)
    end
    local start = session.done == 0 and ',"start":true}' or "}"
    session.done = session.done + 1
    return wrk.format("POST", "/decode", session.headers, '{"session_id":"' .. session.name .. tail .. start)
end

function response(status, headers, body)
    if status == 204 then -- any deleted session will do: all of them start again
        renew(table.remove(deleting))
        return
    end
    local session = status == 200 and by_name[body:match('"session_id":"([^"]*)"')]
    if session then
        push(session)
    else
        refused = refused + 1
        if refused <= 3 then
            io.stderr:write("reply ", status, ": ", body:sub(1, 300), "\n")
        end
        os.exit(1)
    end
end

function done(summary, latency)
    local e = summary.errors
    io.write(string.format("RESULT %.0f %.0f %.0f %d %d\n",
        summary.requests / (summary.duration / 1e6), latency:percentile(50),
        latency:percentile(99), e.status, e.connect + e.read + e.write + e.timeout))
end
