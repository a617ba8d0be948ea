"""Writes tests/golden/json_grammar/cases.json: schemas, and documents that the jsonschema package judges by them.

Per schema the documents are random values near the schema, spelled by json.dumps (compact or indented): about half
are valid. All are of the form that src/json_grammar.h accepts, so acceptance must equal validity.

    python tests/ref/json_grammar.py
"""
import json
import os
import random

import jsonschema

OUT = "tests/golden/json_grammar"
NAMES = ["a", "b", "ab", "abc", "é", "x y", "", "a/b"]
WORDS = ["", "a", "ab", "abc", "é漢🙂", "a\"b\\", "long enough"]


def random_schema(rng, depth=0, refs=True):
    kind = rng.choice(["object", "object", "array", "string", "integer", "number", "boolean", "null", "enum", "const", "anyOf",
                       "list", "any", "ref"][:3 if depth == 0 and rng.random() < .8 else None] if depth < 3 else ["string", "integer", "enum", "boolean", "any"])
    if kind == "object":
        names = rng.sample(NAMES, rng.randint(0, 4))
        s = {"type": "object", "properties": {n: random_schema(rng, depth + 1, refs) for n in names}}
        s["required"] = [n for n in names if rng.random() < .5]
        more = rng.random()
        if more < .6:
            s["additionalProperties"] = False
        elif more < .8:
            s["additionalProperties"] = random_schema(rng, depth + 1, refs)
        return s
    if kind == "array":
        s = {"type": "array", "items": random_schema(rng, depth + 1, refs)}
        if rng.random() < .5:
            s["minItems"] = rng.randint(0, 2)
        if rng.random() < .5:
            s["maxItems"] = rng.randint(2, 4)
        return s
    if kind == "string":
        s = {"type": "string"}
        if rng.random() < .5:
            s["minLength"] = rng.randint(0, 3)
        if rng.random() < .5:
            s["maxLength"] = rng.randint(3, 6)
        return s
    if kind == "integer":
        s = {"type": "integer"}
        if rng.random() < .6:
            s[rng.choice(["minimum", "exclusiveMinimum"])] = rng.choice([-1200, -15, -1, 0, 1, 7, 95])
        if rng.random() < .6:
            s[rng.choice(["maximum", "exclusiveMaximum"])] = rng.choice([97, 100, 105, 999, 12345])
        return s
    if kind == "enum":
        return {"enum": rng.sample([1, 12, 123, -1, "a", "ab", "é", None, True, False, [1], {"a": 1}, 1.5], rng.randint(1, 5))}
    if kind == "const":
        return {"const": rng.choice([0, "x", None, "a\"b"])}
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth + 1, refs) for _ in range(rng.randint(1, 3))]}
    if kind == "list":
        return {"type": rng.sample(["string", "integer", "null", "boolean", "array", "object"], rng.randint(1, 3))}
    if kind == "any":
        return rng.choice([{}, True, {"description": "x"}])
    if kind == "ref":
        return {"$ref": rng.choice(["#", "#/$defs/d0", "#/$defs/d1"])} if refs else {"type": "null"}
    return {"type": kind}


def random_any(rng, depth=0):
    pick = rng.randrange(8 if depth < 3 else 6)
    return [lambda: None, lambda: rng.random() < .5, lambda: rng.choice([-1, 0, 1, 7, 12, 96, 100, 123456]), lambda: rng.choice([1.5, -0.25, 20000000000.5]),
            lambda: rng.choice(WORDS), lambda: rng.choice(WORDS), lambda: [random_any(rng, depth + 1) for _ in range(rng.randint(0, 3))],
            lambda: {n: random_any(rng, depth + 1) for n in rng.sample(NAMES, rng.randint(0, 3))}][pick]()


def near(rng, s, root, depth=0):
    """A value that is often valid."""
    if depth > 8 or s is True or not isinstance(s, dict) or rng.random() < .12:
        return random_any(rng)
    if "$ref" in s:
        target = root
        for part in s["$ref"].split("/")[1:]:
            target = target[part]
        return near(rng, target, root, depth + 1)
    if "anyOf" in s:
        return near(rng, rng.choice(s["anyOf"]), root, depth + 1)
    if "enum" in s:
        return rng.choice(s["enum"])
    if "const" in s:
        return s["const"]
    kind = s.get("type")
    if isinstance(kind, list):
        kind = rng.choice(kind)
    if kind == "object":
        value = {n: near(rng, p, root, depth + 1) for n, p in s.get("properties", {}).items()
                 if n in s.get("required", []) or rng.random() < .4}
        if rng.random() < .3:
            value[rng.choice(NAMES)] = random_any(rng, 2)
        if rng.random() < .15 and value:
            value.pop(rng.choice(sorted(value)))
        items = list(value.items())
        rng.shuffle(items)
        return dict(items)
    if kind == "array":
        low = s.get("minItems", 0)
        return [near(rng, s.get("items", True), root, depth + 1) for _ in range(max(0, rng.randint(low, s.get("maxItems", low + 2)) + (rng.random() < .1)))]
    if kind == "string":
        return "".join(rng.choice("ab é漢🙂\"") for _ in range(rng.randint(0, 6)))
    if kind == "integer":
        low, high = s.get("minimum", s.get("exclusiveMinimum", -50)), s.get("maximum", s.get("exclusiveMaximum", 200))
        return rng.randint(min(low, high) - 1, max(low, high) + 1)
    if kind == "number":
        return rng.choice([0, 1.5, -2, 10000000000.5, -0.001])
    if kind == "boolean":
        return rng.random() < .5
    return None if kind == "null" else random_any(rng)


def spell(rng, schema, value):
    """Compact where an enum has lists or objects, which have one accepted spelling."""
    styles = [{"separators": (",", ":")}, {}, {"indent": 1}, {"indent": 4}]
    compound = '"enum": ' in json.dumps(schema) and ('[1]' in json.dumps(schema) or '{"a": 1}' in json.dumps(schema))
    return json.dumps(value, ensure_ascii=False, **styles[0 if compound else rng.randrange(4)])


def main():
    rng = random.Random(11)
    cases, valid = [], 0
    while len(cases) < 220:
        schema = random_schema(rng)
        if not isinstance(schema, dict):
            continue
        schema["$defs"] = {"d0": random_schema(rng, 1), "d1": random_schema(rng, 2, False)}
        documents = []
        try:
            validator = jsonschema.Draft202012Validator(schema)
            for _ in range(10):
                value = near(rng, schema, schema)
                text = spell(rng, schema, value)
                documents.append([text, validator.is_valid(value)])
        except RecursionError:  # a reference to itself alone
            continue
        valid += sum(ok for _, ok in documents)
        cases.append({"schema": json.dumps(schema, ensure_ascii=False), "documents": documents})
    os.makedirs(OUT, exist_ok=True)
    with open(f"{OUT}/cases.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False) for c in cases) + "\n]\n")
    print(len(cases), "schemas,", valid, "valid documents")


main()
