-- attend.lua: wrk script: weightless attention in binary form, the same request again and again.
local heads, tokens, width = 8, 16, 32

-- A float32 in +-1 as four bytes, little-endian; LuaJIT has no string.pack.
local ffi = require("ffi")
local numbers = ffi.new("float[?]", 3 * heads * tokens * width)
math.randomseed(7)
for i = 0, 3 * heads * tokens * width - 1 do
    numbers[i] = math.random() * 2 - 1
end

local shape = string.format("[%d,%d,%d]", heads, tokens, width)
local tensor = string.format('{"shape":%s,"datatype":"FP32","binary_data_size":%d}', shape,
    4 * heads * tokens * width)
local json = string.format('{"query":%s,"key":%s,"value":%s,"binary_output":true}', tensor, tensor, tensor)
json = json .. string.rep(" ", -#json % 64) -- so that the tensors are aligned

wrk.method = "POST"
wrk.path = "/attend"
wrk.headers["Content-Type"] = "application/octet-stream"
wrk.headers["Inference-Header-Content-Length"] = tostring(#json)
wrk.body = json .. ffi.string(numbers, ffi.sizeof(numbers))

function response(status, headers, body)
    if status ~= 200 then
        io.stderr:write("reply ", status, ": ", body:sub(1, 300), "\n")
        os.exit(1)
    end
end
