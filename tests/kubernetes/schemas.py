"""schemas.py: objects of Kubernetes against the schemas that its API publishes.

The schemas are read from the models of @kubernetes/client-node, which are generated from Kubernetes'
OpenAPI document: each model lists its fields with their types, and which of them may be absent.
"""
import json
import os
import re

SCALARS = {"string": str, "number": (int, float), "boolean": bool, "any": object, "object": dict,
           "IntOrString": (int, str), "Date": str, "V1MicroTime": str}


def read(directory):
    """{"version": release, "models": {name: {"types": {field: type}, "needed": set of fields}}}."""
    models, version = {}, None
    for file in sorted(os.listdir(directory)):
        name, ending = os.path.splitext(file)
        if ending != ".js":
            continue
        with open(os.path.join(directory, file), encoding="utf-8") as source:
            text = source.read()
        with open(os.path.join(directory, name + ".d.ts"), encoding="utf-8") as source:
            declared = re.findall(r"(?m)^    '([^']+)'(\??): ", source.read())
        listed = re.search(rf"(?s){name}\.attributeTypeMap = (\[.*?\n\]);", text)
        if listed is None:
            continue
        version = version or re.search(r"spec version: (\S+)", text)[1]
        types = {field["baseName"]: field["type"] for field in json.loads(listed[1])}
        names = {field["name"]: field["baseName"] for field in json.loads(listed[1])}
        models[name] = {"types": types,
                        "needed": {names[field] for field, absent in declared if not absent}}
    return {"version": version, "models": models}


def problems_of(schema, item):
    """What in an object with apiVersion and kind is not as the schema has it."""
    version = item["apiVersion"].split("/")[-1]
    name = version[0].upper() + version[1:] + item["kind"]
    if name not in schema["models"]:
        return [f"no model {name}"]
    return list(problems(schema["models"], name, item, ""))


def problems(models, kind, value, path):
    array = re.fullmatch(r"Array<(.*)>", kind)
    table = re.fullmatch(r"\{ \[key: string\]: (.*); \}", kind)
    if array and isinstance(value, list):
        for i, element in enumerate(value):
            yield from problems(models, array[1], element, f"{path}[{i}]")
    elif table and isinstance(value, dict):
        for key, element in value.items():
            yield from problems(models, table[1], element, f"{path}.{key}")
    elif kind in models and isinstance(value, dict):
        model = models[kind]
        for field in sorted(model["needed"] - set(value)):
            yield f"{path}: no {field}, which {kind} needs"
        for field, element in value.items():
            if field not in model["types"]:
                yield f"{path}.{field}: {kind} has no such field"
            else:
                yield from problems(models, model["types"][field], element, f"{path}.{field}")
    elif array or table or kind not in SCALARS or not isinstance(value, SCALARS[kind]) \
            or isinstance(value, bool) and kind not in ("boolean", "any"):
        yield f"{path}: {value!r} is no {kind}"
