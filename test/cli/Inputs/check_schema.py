"""Is a file's JSON as a schema says? check_schema.py SCHEMA.json FILE..., where a .jsonl has a value on each line.

Takes what the schemas of docs/reference/schemas use of JSON Schema (draft 2020-12), and no other key.
"""
import json
import pathlib
import re
import sys

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
ANNOTATIONS = {"$schema", "$defs", "title", "description"}


def has_type(value, name):
    if name in ("number", "integer"):
        return isinstance(value, (int, float) if name == "number" else int) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


class Checker:
    def __init__(self, path):
        self.folder = path.parent
        self.root = json.loads(path.read_text())
        assert self.root["$schema"] == "https://json-schema.org/draft/2020-12/schema"

    def at(self, reference):
        name, _, place = reference.partition("#")
        if name:
            return Checker(self.folder / name).root
        schema = self.root
        for key in place.strip("/").split("/"):
            schema = schema[key]
        return schema

    def check(self, value, schema, where):
        if "$ref" in schema:
            return self.check(value, self.at(schema["$ref"]), where)
        for key, rule in schema.items():
            if key not in ANNOTATIONS:
                getattr(self, "check_" + key)(value, rule, schema, where)

    def check_type(self, value, rule, schema, where):
        names = [rule] if isinstance(rule, str) else rule
        assert any(has_type(value, name) for name in names), f"{where}: {value!r} is no {' or '.join(names)}"

    def check_enum(self, value, rule, schema, where):
        assert value in rule, f"{where}: {value!r} is none of {rule}"

    def check_minimum(self, value, rule, schema, where):
        assert value is None or value >= rule, f"{where}: {value!r} is less than {rule}"

    def check_required(self, value, rule, schema, where):
        assert not isinstance(value, dict) or set(rule) <= set(value), f"{where}: lacks {set(rule) - set(value)}"

    def check_properties(self, value, rule, schema, where):
        for key in value if isinstance(value, dict) else ():
            if key in rule:
                self.check(value[key], rule[key], f"{where}.{key}")

    def check_patternProperties(self, value, rule, schema, where):
        for pattern, one in rule.items():
            for key in value if isinstance(value, dict) else ():
                if re.search(pattern, key):
                    self.check(value[key], one, f"{where}.{key}")

    def check_additionalProperties(self, value, rule, schema, where):
        for key in value if isinstance(value, dict) else ():
            if key not in schema.get("properties", {}) and not any(
                    re.search(pattern, key) for pattern in schema.get("patternProperties", {})):
                assert rule is not False, f"{where}: the key '{key}' is not in the schema"
                self.check(value[key], rule, f"{where}.{key}")

    def check_items(self, value, rule, schema, where):
        for i, one in enumerate(value if isinstance(value, list) else ()):
            self.check(one, rule, f"{where}[{i}]")

    def check_anyOf(self, value, rule, schema, where):
        faults = []
        for one in rule:
            try:
                return self.check(value, one, where)
            except AssertionError as fault:
                faults.append(str(fault))
        raise AssertionError("; or ".join(faults))


checker = Checker(pathlib.Path(sys.argv[1]))
for path in sys.argv[2:]:
    text = open(path).read()
    for value in [json.loads(line) for line in text.splitlines()] if path.endswith(".jsonl") else [json.loads(text)]:
        checker.check(value, checker.root, pathlib.Path(path).name)
print(f"{pathlib.Path(sys.argv[1]).name}: {len(sys.argv) - 2} files are as it says")
