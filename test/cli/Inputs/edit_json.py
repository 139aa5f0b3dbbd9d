"""edit_json.py IN.json OUT.json KEY=VALUE|-KEY...: an object with other values, VALUE as JSON, or without a key."""
import json
import sys

content = json.load(open(sys.argv[1]))
for edit in sys.argv[3:]:
    if edit.startswith("-"):
        del content[edit[1:]]
    else:
        key, value = edit.split("=", 1)
        content[key] = json.loads(value)
json.dump(content, open(sys.argv[2], "w"))
