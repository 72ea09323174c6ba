#!/usr/bin/env python3
"""openapi_tables.py: rows of the tables of docs/API.md, from the document that the build prints.

    openapi_tables.py OPENAPI_JSON routes|fields|create|outputs
"""
import json
import sys

KINDS = {"FloatTensor": "numbers", "MaskTensor": "mask", "BiasTensor": "numbers or null",
         "IntegerTensor": "integers", "Id": "id", "ModelName": "string"}


def number(value):
    return str(value) if isinstance(value, int) else f"{value:g}".replace("e+", "e")


def limits(node):
    """The bounds of a number, in words."""
    least, most = node.get("minimum"), node.get("maximum")
    if "exclusiveMinimum" in node:
        return f" above {number(node['exclusiveMinimum'])}, at most {number(most)}"
    if least is None:
        return ""
    return f", {number(least)} or more" if most is None else f" from {number(least)} to {number(most)}"


def form(node, schemas):
    """What a field's value is, in words."""
    if "anyOf" in node:
        parts = [form(part, schemas) for part in node["anyOf"] if part.get("type") != "null"]
        return " or ".join(dict.fromkeys(parts))
    if "$ref" in node:
        name = node["$ref"].split("/")[-1]
        return KINDS.get(name) or form(schemas[name], schemas)
    if "enum" in node:
        return ", ".join(f"`{word}`" for word in node["enum"])
    if node["type"] == "array":
        return f"list of at most {node['maxItems']}" if "maxItems" in node else "list"
    return {"boolean": "bool"}.get(node["type"], node["type"] + limits(node))


def field_rows(bodies, schemas):
    """A row for each field: which of the bodies may hold it, if there are several; value; meaning."""
    names = []
    for schema in bodies.values():
        for at, name in enumerate(list(schema["properties"])):
            if name not in names:
                before = list(schema["properties"])[at - 1] if at > 0 else None
                names.insert(names.index(before) + 1 if before else 0, name)
    for name in names:
        holders = [word for word, schema in bodies.items() if name in schema["properties"]]
        node = bodies[holders[0]]["properties"][name]
        shapes = "".join(f" `{shape}`" for shape in node.get("x-shapes", []))
        cells = [f"`{name}`", form(node, schemas) + shapes, node["description"]]
        yield cells[:1] + ([" ".join(holders)] if len(bodies) > 1 else []) + cells[1:]


def route_rows(paths):
    """A row for each operation; paths of one summary share it."""
    rows = {}
    for path, item in paths.items():
        for method, operation in item.items():
            scopes = [word for row in operation["security"] for word in row.get("ApiKey", [])]
            key = "any" if len(scopes) == 3 else " or ".join(f"`{word}`" for word in scopes) or "none"
            rows.setdefault((method, operation["summary"], key), []).append(f"`{path}`")
    for (method, summary, key), group in rows.items():
        yield [f"`{method.upper()}`", ", ".join(group), key, summary]


def output_rows(schemas):
    properties = schemas["Attention"]["properties"]
    for name in schemas["OutputName"]["enum"]:
        shapes = " ".join(f"`{shape}`" for shape in properties[name]["x-shapes"])
        yield [f"`{name}`", shapes, properties[name]["description"]]


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        document = json.load(file)
    schemas = document["components"]["schemas"]
    bodies = {"A": schemas["AttendRequest"], "D": schemas["DecodeRequest"],
              "I": schemas["StepRequest"]}
    tables = {"routes": lambda: route_rows(document["paths"]),
              "fields": lambda: field_rows(bodies, schemas),
              "create": lambda: field_rows({"": schemas["CreateRequest"]}, schemas),
              "outputs": lambda: output_rows(schemas)}
    for cells in tables[sys.argv[2]]():
        print("| " + " | ".join(cells) + " |")


main()
