"""Validates recorded exchanges (tests/http/record.c) against the description of the interface.

A Description knows operations, schemas and replies of an OpenAPI 3.1 document.  `faults` lists what
is wrong with one exchange; an exchange whose form has been seen is not validated a second time.
"""
import copy
import json
import re
import urllib.parse

from jsonschema import Draft202012Validator, RefResolver
from jsonschema.validators import extend

JSON, BYTES = "application/json", "application/octet-stream"

# Errors that a schema must foresee: a request that got one of them is not valid.  Whether `model`
# may be left out is for the configuration to say.
FORESEEN = {"unknown_field", "missing_field", "invalid_type"}
NOT_FORESEEN = {("missing_field", "model")}

# Fields of replies that belong to HTTP and to browsers' rules (CORS), and not to the interface.
PLAIN_FIELDS = {"date", "connection", "content-length", "content-type", "transfer-encoding", "vary",
                "access-control-allow-origin", "access-control-expose-headers"}

def is_integer(checker, value):
    """An integer as attnd reads it: without fraction, so that 1.0 is none."""
    return isinstance(value, int) and not isinstance(value, bool)


Validator = extend(Draft202012Validator, type_checker=Draft202012Validator.TYPE_CHECKER.redefine(
    "integer", is_integer))


OBJECTS_MAX = 16    # of a list, as record.c shortens it

# Texts that differ from one exchange to the next, whatever the interface.
VARYING = {"message", "request_id", "fingerprint"}
ID = re.compile("^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def kind_of(number):
    """Numbers that no schema tells apart are one."""
    if isinstance(number, bool) or number in (0, 1) or abs(number) > 1e4:
        return number
    return (2 if isinstance(number, int) else 0.5) * (1 if number > 0 else -1)


def reduce_member(name, value):
    if isinstance(value, str) and (name in VARYING or name == "session_id" and ID.match(value)):
        return "x"
    if name in ("epoch", "revision", "bytes", "idle_s", "position", "length") and is_number(value):
        return 2 if value > 2 and isinstance(value, int) else 0.5 if value > 2 else value
    return reduce(value)


def reduce(value):
    """A shorter value of the same form: of a long list each kind of element once."""
    if isinstance(value, dict):
        return {name: reduce_member(name, member) for name, member in value.items()}
    if is_number(value):
        return kind_of(value)
    if not isinstance(value, list):
        return value
    if len(value) > 1 and not any(isinstance(element, (dict, list, str)) for element in value):
        kinds = {repr(element): element for element in map(reduce, value)}
        return [kinds[name] for name in sorted(kinds)]
    reduced = [reduce(element) for element in value]
    if any(isinstance(element, str) for element in value):
        return reduced
    return list({json.dumps(element): element for element in reduced}.values())


class Description:
    def __init__(self, document):
        self.document = document
        self.resolver = RefResolver("", document)
        self.paths = [(self.pattern(path, item), path, item)
                      for path, item in document["paths"].items()]
        self.validators = {}
        self.verdicts = {}     # by schema and value

    @staticmethod
    def pattern(path, item):
        slash = any("x-trailing-slash" in operation for operation in item.values())
        path = re.sub(r"\{[a-z_]+\}", "[^/]{1,64}", path)
        return re.compile(path + ("/?$" if slash else "$"))

    def resolve(self, value):
        return self.resolver.resolve(value["$ref"])[1] if "$ref" in value else value

    def valid(self, schema, value):
        """None, or the place and text of the first fault."""
        key = id(schema)
        if key not in self.validators:
            self.validators[key] = Validator(schema, resolver=self.resolver)
        form = (key, json.dumps(value))
        if form not in self.verdicts:
            error = next(self.validators[key].iter_errors(value), None)
            self.verdicts[form] = error and \
                "/".join(map(str, error.absolute_path)) + ": " + error.message[:200]
        return self.verdicts[form]

    def find(self, method, path):
        """The template of a path and the operation; (None, None), (template, None)."""
        path = re.sub("^https?://[^/]*", "", path.split("?")[0]) or "/"
        for pattern, template, item in self.paths:
            if pattern.match(path):
                return template, item.get({"HEAD": "get"}.get(method, method.lower()))
        return None, None


def media(text):
    return (text or "").split(";")[0].strip().lower()


class Checker:
    def __init__(self, description):
        self.description = description
        self.schemas = description.document["components"]["schemas"]
        self.seen = {}
        self.counts = {}      # of exchanges, by operation
        self.bodies = 0       # bodies that were validated
        self.foreseen = 0     # refused requests that their schema refuses too

    # ---- Parts of an exchange ----

    def request_schema(self, operation, exchange):
        """The schema of the body, None where there is none to be valid by."""
        body = operation.get("requestBody")
        if body is None:
            return None
        content = body["content"]
        return content[JSON]["schema"] if JSON in content else None

    def request_fault(self, operation, exchange):
        schema = self.request_schema(operation, exchange)
        if schema is None or "request" not in exchange:
            return None
        self.bodies += 1
        return self.description.valid(schema, exchange["request"])

    def request_faults(self, operation, exchange, code):
        fault = self.request_fault(operation, exchange)
        done = exchange["status"] < 300
        if done and fault:
            yield "was answered, but the schema refuses it: " + fault
        if done and exchange.get("request_is") != "none" and "requestBody" in operation:
            content = operation["requestBody"]["content"]
            if exchange["type"] and not {media(exchange["type"]), "*/*"} & set(content):
                yield f"was answered, but its media type {exchange['type']} is not documented"
        if done and exchange.get("request_is") == "none" and \
                operation.get("requestBody", {}).get("required"):
            yield "was answered, but a body is required"
        if code in FORESEEN and "request" in exchange and not exchange["cut"] and \
                self.request_schema(operation, exchange) is not None:
            self.foreseen += fault is not None
            if fault is None:
                yield f"was refused with {code}, but the schema allows it"

    def reply_faults(self, reply, exchange):
        content = reply.get("content")
        fields = exchange["fields"]
        if exchange["method"] == "HEAD":
            return
        if content is None:
            typed = "content-type" in fields and exchange["status"] != 304  # of what is not sent
            if exchange.get("reply_is") != "none" or typed:
                yield "has a body, and none is documented"
            return
        kind = media(fields.get("content-type"))
        if kind not in content:
            yield f"the reply's media type {kind!r} is not documented"
            return
        # A reply of bytes begins with JSON; a file of another type has none.
        schema = None if kind.startswith("text/") else content.get(JSON, {}).get("schema")
        if schema is None or exchange.get("reply_is") == "long" or "content-encoding" in fields:
            return
        if "reply" not in exchange:
            yield "the reply is no JSON"
            return
        self.bodies += 1
        fault = self.description.valid(schema, exchange["reply"])
        if fault:
            yield "the reply is not as documented: " + fault

    def field_faults(self, reply, exchange):
        documented = {name.lower() for name in reply.get("headers", {})}
        for name in exchange["fields"]:
            if name not in documented and name not in PLAIN_FIELDS:
                yield f"the reply's field {name} is not documented"
        for name in ("x-request-id", "x-attn-instance", "cache-control"):
            if name not in exchange["fields"]:
                yield f"the reply lacks the field {name}"

    def query_faults(self, operation, exchange):
        pairs = exchange["path"].partition("?")[2].split("&")
        given = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        for parameter in operation["parameters"]:
            parameter = self.description.resolve(parameter)
            if parameter["in"] != "query" or parameter["name"] not in given:
                continue
            value = urllib.parse.unquote(given[parameter["name"]])
            value = int(value) if re.fullmatch("[0-9]+", value) else value
            fault = self.description.valid(parameter["schema"], value)
            if fault and exchange["status"] < 300:
                yield f"was answered, but {parameter['name']} is not valid{fault}"

    # ---- An exchange ----

    def unknown_faults(self, exchange, what):
        """Of a request that is none, or that no operation takes."""
        preflight = exchange["method"] == "OPTIONS" and exchange["status"] == 204 and \
            "access-control-allow-methods" in exchange["fields"]
        if preflight or (exchange["method"] is None and exchange["status"] < 400):
            return
        if exchange["status"] < 400:
            yield f"{what} is not documented, and the request was answered"
        elif exchange["method"] != "HEAD" and "reply" in exchange and \
                media(exchange["fields"].get("content-type")) == JSON:
            self.bodies += 1
            below_v2 = re.match("/v2($|[/?])", exchange["path"] or "")
            schema = self.schemas["V2Error" if below_v2 and "V2Error" in self.schemas else "Error"]
            fault = self.description.valid(schema, exchange["reply"])
            if fault:
                yield "the error is not as documented: " + fault

    def operation_faults(self, operation, exchange):
        status = str(exchange["status"])
        if status not in operation["responses"]:
            yield f"the status {status} is not documented"
            return
        reply = self.description.resolve(operation["responses"][status])
        body = exchange.get("reply")
        error = body.get("error") if isinstance(body, dict) else None
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(error, dict) and (code, error.get("param")) in NOT_FORESEEN:
            code = None
        yield from self.request_faults(operation, exchange, code)
        yield from self.query_faults(operation, exchange)
        yield from self.field_faults(reply, exchange)
        yield from self.reply_faults(reply, exchange)

    def faults(self, exchange):
        exchange = dict(exchange)
        sequences = exchange["request"].get("sequences") if \
            isinstance(exchange.get("request"), dict) else None
        exchange["cut"] = isinstance(sequences, list) and len(sequences) >= OBJECTS_MAX
        for name in ("request", "reply"):
            if name in exchange:
                exchange[name] = reduce(exchange[name])
        template, operation = None, None
        if exchange["method"] and exchange["path"]:
            template, operation = self.description.find(exchange["method"], exchange["path"])
        name = "what no operation takes"
        if operation is not None:
            method = "GET" if exchange["method"] == "HEAD" else exchange["method"]
            name = f"{method} {template}"
        self.counts[name] = self.counts.get(name, 0) + 1
        form = json.dumps([name, {key: exchange[key] for key in exchange if key not in
                                  ("fields", "path")},
                           sorted(exchange["fields"]), exchange["path"] and
                           exchange["path"].partition("?")[2]])
        if form not in self.seen:
            if operation is not None:
                self.seen[form] = list(self.operation_faults(operation, exchange))
            else:
                what = f"the path {exchange['path']}" if template is None else \
                    f"the method {exchange['method']}"
                self.seen[form] = list(self.unknown_faults(exchange, what))
        return self.seen[form]


# ---- Planted faults ----

def planted(description, exchange):
    """Changed copies of a good exchange, each with what is wrong in it."""
    operation = description.find(exchange["method"], exchange["path"])[1]

    def changed(what, change):
        other = copy.deepcopy(exchange)
        change(other)
        return what, other

    yield changed("a status that is not documented", lambda e: e.update(status=418))
    yield changed("a field of the reply", lambda e: e["fields"].update({"x-planted": "1"}))
    yield changed("a field that is missing", lambda e: e["fields"].pop("x-request-id"))
    yield changed("another media type", lambda e: e["fields"].update({"content-type": "text/x-planted"}))
    yield changed("a path that is not there", lambda e: e.update(path="/planted"))
    yield changed("a method that is not there", lambda e: e.update(method="PATCH"))
    # The description itself is of OpenAPI's form, which document.py checks.
    if isinstance(exchange.get("reply"), dict) and exchange["path"] != "/openapi.json":
        yield changed("a member of the reply", lambda e: e["reply"].update(planted=1))
        first = next(iter(exchange["reply"]))
        yield changed("a member that is missing", lambda e: e["reply"].pop(first))
        yield changed("a member of another type", lambda e: e["reply"].update({first: {"p": 1}}))
    if isinstance(exchange.get("request"), dict) and "requestBody" in operation:
        yield changed("a member of the request", lambda e: e["request"].update(planted=1))
