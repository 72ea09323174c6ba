"""Checks that a document is OpenAPI 3.1, as far as attnd uses it; @redocly/cli checks all of it."""
import re

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

METHODS = {"get", "post", "put", "delete", "patch", "options", "head", "trace"}
KINDS = {"schemas", "responses", "parameters", "headers", "securitySchemes"}


def walk(value, place="#"):
    yield place, value
    members = value.items() if isinstance(value, dict) else \
        enumerate(value) if isinstance(value, list) else ()
    for name, member in members:
        yield from walk(member, f"{place}/{name}")


def reference_faults(document):
    for place, value in walk(document):
        if not isinstance(value, dict) or not isinstance(value.get("$ref"), str):
            continue
        target = document
        for part in value["$ref"].split("/")[1:]:
            target = target.get(part) if isinstance(target, dict) else None
        if target is None:
            yield f"{place}: {value['$ref']} leads nowhere"


def schema_faults(document):
    """Every schema is one of draft 2020-12."""
    for place, value in walk(document):
        if place.endswith("/schema") or re.fullmatch("#/components/schemas/[^/]+", place):
            try:
                Draft202012Validator.check_schema(value)
            except SchemaError as error:
                yield f"{place}: {error.message[:200]}"


def type_faults(document):
    """What generators of clients need to make a type that is not `unknown`."""
    for place, value in walk(document):
        if not isinstance(value, dict):
            continue
        if value.get("type") == "array" and "items" not in value:
            yield f"{place}: an array without items"
        if value.get("type") == "object" and not {"properties", "additionalProperties"} & set(value):
            yield f"{place}: an object without members"
        if place.endswith("/schema") and not {"$ref", "type", "anyOf", "enum"} & set(value):
            yield f"{place}: a schema without a type"


def reply_faults(place, reply):
    if not isinstance(reply.get("description"), str):
        yield f"{place} has no description"
    for kind, content in reply.get("content", {}).items():
        if "schema" not in content:
            yield f"{place} {kind} has no schema"


def parameter_faults(place, path, parameters):
    variables = set(re.findall(r"\{([^}]+)\}", path))
    declared = {p["name"] for p in parameters if p.get("in") == "path" and p.get("required") is True}
    if variables != declared:
        yield f"{place}: its path has {sorted(variables)}, declared are {sorted(declared)}"
    names = [(p.get("in"), p.get("name")) for p in parameters]
    if len(set(names)) != len(names):
        yield f"{place}: a parameter stands twice"
    for parameter in parameters:
        if parameter.get("in") not in ("path", "query", "header") or "schema" not in parameter:
            yield f"{place}: the parameter {parameter.get('name')} is not whole"


def operation_faults(document, path, method, operation):
    def resolved(value):
        parts = value["$ref"].split("/")[2:] if "$ref" in value else None
        return document["components"][parts[0]][parts[1]] if parts else value

    place = f"{method.upper()} {path}"
    if not operation.get("summary") or not operation.get("operationId"):
        yield f"{place} has no operationId or summary"
    replies = operation.get("responses", {})
    if not any(status.startswith("2") for status in replies):
        yield f"{place} has no success"
    for status, reply in replies.items():
        if not re.fullmatch("[1-5][0-9][0-9]", status):
            yield f"{place}: {status} is no status"
        yield from reply_faults(f"{place} {status}", resolved(reply))
    yield from parameter_faults(place, path, [resolved(p) for p in operation["parameters"]])
    for way in operation["security"]:
        for name in way:
            if name not in document["components"]["securitySchemes"]:
                yield f"{place}: there is no security scheme {name}"


def faults(document):
    """What is wrong with the document, a line each."""
    if not re.fullmatch(r"3\.1\.[0-9]+", document.get("openapi", "")):
        yield "openapi is not 3.1"
    if not {"title", "version", "license"} <= set(document.get("info", {})):
        yield "info is not whole"
    yield from reference_faults(document)
    yield from schema_faults(document)
    yield from type_faults(document)
    for kind, members in document["components"].items():
        if kind not in KINDS:
            yield f"components has {kind}"
        for name in members:
            if not re.fullmatch("[A-Za-z0-9._-]+", name):
                yield f"components/{kind}: {name} is no name"
    ids = []
    for path, item in document["paths"].items():
        if not path.startswith("/") or not set(item) <= METHODS:
            yield f"{path} is no path, or has what is no method"
        for method, operation in item.items():
            ids.append(operation.get("operationId"))
            yield from operation_faults(document, path, method, operation)
    if len(set(ids)) != len(ids):
        yield "an operationId stands twice"
