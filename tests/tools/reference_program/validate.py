#!/usr/bin/env python3
"""validate.py SCHEMA DOCUMENT...: a line for each document that the schema refuses, and why."""

import json
import sys

import jsonschema

with open(sys.argv[1], encoding="utf-8") as file:
    schema = json.load(file)
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema)
for path in sys.argv[2:]:
    with open(path, encoding="utf-8") as file:
        error = jsonschema.exceptions.best_match(validator.iter_errors(json.load(file)))
    if error:
        print(f"{path}: {error.json_path}: {error.message[:400]}")
