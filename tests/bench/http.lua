-- http.lua: wrk script of http.sh: GETs, or decodes that were put together beforehand.
--
-- Without SESSIONS wrk's own request, a GET of the URL, is sent.  With it, requests are steps of one
-- row that are computed but not kept ("commit": false), so that all of a run cost the same and wrk
-- spends nothing on making them; they go over sessions PREFIX1 ... PREFIX<SESSIONS> in turn.
--
-- FORM is json or binary, WIDTH the model's, TOGETHER the sessions of one request (1: no list).
-- Prints RESULT requests/s, p50 and p99 in microseconds, replies other than 2xx, socket errors.
local ffi = require("ffi")

local function env(name) return os.getenv(name) end
local sessions, width = tonumber(env("SESSIONS") or ""), tonumber(env("WIDTH") or "")
local together, binary = tonumber(env("TOGETHER") or "1"), env("FORM") == "binary"
local requests, at = {}, 0

-- One row: the members that hold it, and its bytes.
local function row(session)
    local head = '"session_id":"' .. env("PREFIX") .. session .. '","commit":false,"hidden_states":'
    local numbers = ffi.new("float[?]", width)
    for i = 0, width - 1 do
        numbers[i] = math.random() * 2 - 1
    end
    if binary then
        return head .. '{"shape":[1,' .. width .. '],"datatype":"FP32","binary_data_size":'
            .. 4 * width .. "}", ffi.string(numbers, 4 * width)
    end
    local digits = {}
    for i = 1, width do
        digits[i] = string.format("%.9g", numbers[i - 1])
    end
    return head .. "[" .. table.concat(digits, ",") .. "]", ""
end

local function body(first)
    local items, bytes = {}, {}
    for i = 1, together do
        items[i], bytes[i] = row(first + i - 1)
    end
    local json = "{" .. items[1] .. "}"
    if together > 1 then
        json = '{"sequences":[{' .. table.concat(items, "},{") .. "}]}"
    end
    return json, json .. table.concat(bytes)
end

if sessions then
    function init()
        wrk.headers["Content-Type"] = "application/json"
        wrk.headers["Accept"] = binary and "application/octet-stream" or "application/json"
        for first = 1, sessions - together + 1, together do
            local json, whole = body(first)
            if binary then
                wrk.headers["Inference-Header-Content-Length"] = #json
            end
            requests[#requests + 1] = wrk.format("POST", "/decode", nil, whole)
        end
    end

    function request()
        at = at % #requests + 1
        return requests[at]
    end
end

function done(summary, latency)
    local e = summary.errors
    io.write(string.format("RESULT %.0f %.0f %.0f %d %d\n",
        summary.requests / (summary.duration / 1e6), latency:percentile(50),
        latency:percentile(99), e.status, e.connect + e.read + e.write + e.timeout))
end
