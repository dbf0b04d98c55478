"""A value and a JSON Schema: as much of it as msgspec writes."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

KINDS = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
KNOWN = {
    *("$ref", "anyOf", "type", "properties", "required", "additionalProperties", "items", "enum", "title"),
    *(
        "description",
        "default",
        "format",
        "contentEncoding",
        "minItems",
        "maxItems",
        "prefixItems",
        "const",
        "discriminator",
    ),
    *("minimum", "maximum", "exclusiveMinimum", "minLength", "maxLength", "pattern"),
}


def misfits(value: Any, schema: Mapping[str, Any], components: Mapping[str, Any], at: str = "$") -> Iterator[str]:
    """Yield where a value does not fit a schema."""
    assert set(schema) <= KNOWN, set(schema) - KNOWN
    if "$ref" in schema:
        yield from misfits(value, components[schema["$ref"].removeprefix("#/components/schemas/")], components, at)
    if "anyOf" in schema and all(any(misfits(value, part, components, at)) for part in schema["anyOf"]):
        yield f"{at}: {value!r} fits none of {len(schema['anyOf'])}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    kind = schema.get("type")
    if kind is not None and (not isinstance(value, KINDS[kind]) or (kind != "boolean" and isinstance(value, bool))):
        yield f"{at}: {value!r} is no {kind}"
    elif kind == "integer" and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at}: {value!r} is too small or too large"
    elif kind == "string" and not re.search(schema.get("pattern", ""), value):
        yield f"{at}: {value!r} does not match {schema['pattern']}"
    elif kind == "object":
        known = schema.get("properties", {})
        yield from (f"{at}: {name} is missing" for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            if name in known:
                yield from misfits(item, known[name], components, f"{at}.{name}")
            elif isinstance(others := schema.get("additionalProperties", True), dict):
                yield from misfits(item, others, components, f"{at}.{name}")
            elif not others:
                yield f"{at}: {name} is not known"
    elif kind == "array" and isinstance(schema.get("items"), dict):
        for number, item in enumerate(value):
            yield from misfits(item, schema["items"], components, f"{at}[{number}]")
