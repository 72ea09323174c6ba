"""Sends every pair of fields of /attend and /decode, and every field alone, to the daemon, and
compares its verdict with that of the schema of the request.

Values are made from the field's schema: sound ones, so that the daemon's verdict is about which
fields stand together, and one of a wrong type.  A request that the schema allows may be refused for
what no schema says (shapes, sessions), but not with an error that a schema foresees; one that the
schema refuses must not be answered.
"""
import itertools
import json

# Refusals about which fields stand together, and of which type they are.
ABOUT_FIELDS = {"unknown_field", "missing_field", "invalid_type"}

# A sound value of each type that fields have; a tensor has one row of the model of check.py.
VALUES = {
    "ModelName": "tiny", "Id": "pair", "boolean": True, "Count": 0, "LayerIndex": 0,
    "PositionCount": 1, "PositiveCount": 1, "Radius": 1, "Scale": 1.0, "Softcap": 1.0,
    "OutputList": ["output", "attention_weights", "attention_scores", "head_stats"],
    "ScoreStage": "raw", "PoolType": "max", "MapDatatype": "FP32",
    "FloatTensor": [[1, 0, 0, 0]], "BiasTensor": [[0]], "MaskTensor": [[True]],
    "IntegerTensor": [0], "integer": 0, "KeyGroupList": [[0]],
    "StepRequestList": [{"session_id": "pair", "hidden_states": [1, 0, 0, 0]}],
}
QUERY = [[[1, 0]], [[0, 1]]]
BASES = {
    "/attend": [{}, {"hidden_states": [[1, 0, 0, 0]]},
                {"query": QUERY, "key": QUERY, "value": QUERY},
                {"session_id": "pair", "hidden_states": [[1, 0, 0, 0]]}],
    "/decode": [{}, {"session_id": "pair", "hidden_states": [1, 0, 0, 0]},
                {"sequences": VALUES["StepRequestList"]}],
}


def type_of(schema):
    """The first name of a type in the schema of a field."""
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[1]
    if "anyOf" in schema:
        return type_of(schema["anyOf"][0])
    return schema["type"]


def send(connection, path, body):
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    length = int(reply.getheader("Inference-Header-Content-Length", len(text)))
    return reply.status, json.loads(text[:length])


def bodies_of(path, properties):
    """Each base with every two fields, sound; and with one field, of a wrong type and null."""
    values = {name: VALUES[type_of(schema)] for name, schema in properties.items()}
    values.update(dict.fromkeys(("query", "key", "value"), QUERY), pool=[1, 1])
    for base in BASES[path]:
        for name in values:
            yield {**base, name: {"wrong": 1}}
            yield {**base, name: None}
            yield {**base, name: values[name]}
        for name, other in itertools.combinations(values, 2):
            yield {**base, name: values[name], other: values[other]}


def check(description, connection, report):
    """Returns the number of bodies that were sent."""
    count, answered = 0, 0
    for path in BASES:
        schema = description.document["paths"][path]["post"]["requestBody"]["content"][
            "application/json"]["schema"]
        for body in bodies_of(path, description.resolve(schema)["properties"]):
            fault = description.valid(schema, body)
            status, reply = send(connection, path, body)
            code = reply.get("error", {}).get("code")
            count += 1
            answered += status < 300
            if status < 300 and fault:
                report.fault(f"{path} {json.dumps(body)}: {status}, and the schema: {fault}")
            if code in ABOUT_FIELDS and not fault:
                report.fault(f"{path} {json.dumps(body)}: {code}, and the schema allows it: "
                             + reply["error"]["message"])
            stands = code == "invalid_value" and "beside" in reply["error"]["message"]
            if stands and not fault:
                report.fault(f"{path} {json.dumps(body)}: {reply['error']['message']}, and the "
                             "schema allows it")
    if answered < 100:
        report.fault(f"only {answered} of {count} pairs were answered: the values are not sound")
    return count
