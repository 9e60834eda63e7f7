"""Turns schema.json into C++: the text itself and a flat table of its rules (schema_table.inc).

usage: embed_schema.py schema.json out.inc
"""

import json
import sys

KINDS = {"boolean": "boolean", "integer": "integer", "number": "number", "string": "string",
         "array": "array"}
KNOWN = {"type", "enum", "default", "minimum", "maximum", "multipleOf", "maxLength", "pattern",
         "x-must", "items", "minItems", "maxItems", "description"}


def text(value: object) -> str:
    """A C++ string literal."""
    return json.dumps(value, ensure_ascii=True)


def rule(section: str, key: str, spec: dict) -> str:
    """One row of the table; an unknown keyword fails the build, since C++ would not check it."""
    unknown = set(spec) - KNOWN
    if unknown:
        raise SystemExit(f"{section}.{key}: the validator knows no {sorted(unknown)}")
    item = spec.get("items", {})
    bounds = item if spec["type"] == "array" else spec
    choices = [str(choice) for choice in bounds.get("enum", [])]
    fields = [
        text(section),
        text(key),
        f"Kind::{KINDS[spec['type']]}",
        f"Kind::{KINDS[item['type']]}" if item else "Kind::boolean",
        repr(float(bounds.get("minimum", 0))),
        repr(float(bounds.get("maximum", 0))),
        str(spec.get("multipleOf", 1)),
        str(spec.get("minItems", 0)),
        str(spec.get("maxItems", 0)),
        str(spec.get("maxLength", 0)),
        text(spec.get("pattern", "")),
        text(spec.get("x-must", "")),
        text("\n".join(choices)),
        text(json.dumps(spec["default"]) if "default" in spec else ""),
        text(spec.get("description", "")),
    ]
    return "  {" + ", ".join(fields) + "},"


def main() -> None:
    """Reads the schema, writes the table."""
    source = open(sys.argv[1], encoding="utf-8").read()
    rows = []
    for section, spec in json.loads(source)["properties"].items():
        keys = spec["properties"] if spec["type"] == "object" else spec["items"]["properties"]
        rows += [rule(section, key, key_spec) for key, key_spec in keys.items()]
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write("constexpr Rule kRules[] = {\n" + "\n".join(rows) + "\n};\n")
        out.write("constexpr char kSchemaText[] =\n")
        out.writelines(f"    {text(line)}\n" for line in source.splitlines(keepends=True))
        out.write("    ;\n")


if __name__ == "__main__":
    main()
