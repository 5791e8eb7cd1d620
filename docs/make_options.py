"""Print docs/options.md: every key of an experiment file, from the schema itself.

python -m docs.make_options > docs/options.md
"""

import json
from collections.abc import Iterator
from typing import Any

HEADER = """\
# Options of an experiment file

Made by `make schema` from the sections themselves; a test keeps it equal. Every key can be set in
the file or by `--set section.key=value`. An empty default is `null`: nothing is set.

A candidate of `model.candidates` is a kind, or a kind with a label and options:
`{kind: dense, label: dense_wide, d_ffn: 2048}`. What it leaves out takes the value of the same
name in the section `model`, and where that has none, its own default.
"""
SECTIONS = ("run", "data", "model", "search", "derive", "retrain", "compare", "costs", "sweep")


def json_schema() -> str:
    """The JSON schema of an experiment file, for editors."""
    from model.blocks import BLOCKS
    from nas.derivation import DERIVATIONS
    from pipeline.experiment import BASELINE_NAMES, Experiment

    schema = Experiment.model_json_schema()
    sections = schema["$defs"]
    candidates = sections["ModelConfig"]["properties"]["candidates"]
    candidates["items"] = {"anyOf": [{"enum": list(BLOCKS)}, candidates["items"]]}
    sections["DeriveConfig"]["properties"]["method"]["enum"] = list(DERIVATIONS)
    sections["CompareConfig"]["properties"]["baselines"]["items"]["enum"] = BASELINE_NAMES
    return json.dumps(schema, indent=2) + "\n"


def options_page() -> str:
    """The whole page."""
    schema = json.loads(json_schema())
    parts = [HEADER]
    for section in SECTIONS:
        parts += [f"\n## {section}\n\n| key | default | choices | meaning |\n|---|---|---|---|\n"]
        parts += _rows(section, schema["properties"][section], schema["$defs"])
    parts += ["\n## candidates\n\n| kind | option | default | meaning |\n|---|---|---|---|\n"]
    parts += _candidate_rows(schema["$defs"])
    return "".join(parts)


def _rows(name: str, entry: dict[str, Any], definitions: dict[str, Any]) -> Iterator[str]:
    below = entry.get("additionalProperties")
    if isinstance(below, dict):
        yield f"| `{name}` | {_default(entry)} |  | {_cell(entry)} |\n"
        yield from _rows(f"{name}.KEY", below, definitions)
        return
    targets = [target for target in _references(entry) if target.endswith("Config")]
    if not targets:
        yield f"| `{name}` | {_default(entry)} | {_choices(entry)} | {_cell(entry)} |\n"
        return
    described = set()
    for inner in (definitions[target] for target in targets):
        for key, value in inner["properties"].items():
            # Of several sections that may stand here, the first that has a key describes it.
            if key not in described:
                described.add(key)
                required = {"required": True} if key in inner.get("required", []) else {}
                yield from _rows(f"{name}.{key}", {**value, **required}, definitions)


def _references(entry: dict[str, Any]) -> list[str]:
    entries = [entry, *(part for key in ("anyOf", "allOf", "oneOf") for part in entry.get(key, []))]
    return [part["$ref"].rpartition("/")[2] for part in entries if "$ref" in part]


def _default(entry: dict[str, Any]) -> str:
    if entry.get("required") or "default" not in entry:
        return "(must be given)"
    if entry["default"] is None:
        return ""
    if isinstance(entry["default"], list):
        kinds = [item["kind"] if isinstance(item, dict) else item for item in entry["default"]]
        return f"`{json.dumps(kinds)}`"
    return f"`{json.dumps(entry['default'])}`"


def _choices(entry: dict[str, Any]) -> str:
    entries = [entry, entry.get("items", {}), *entry.get("anyOf", [])]
    return ", ".join(str(choice) for part in entries for choice in part.get("enum", []))


def _cell(entry: dict[str, Any]) -> str:
    return str(entry.get("description", "")).replace("|", "\\|")


def _candidate_rows(definitions: dict[str, Any]) -> Iterator[str]:
    inherited = definitions["ModelConfig"]["properties"]
    for name, definition in definitions.items():
        if not name.endswith("Options"):
            continue
        kind = definition["properties"]["kind"]["const"]
        options = definition["properties"].keys() - {"kind", "label"}
        if not options:
            yield f"| {kind} | | | none |\n"
        for key, value in definition["properties"].items():
            if key in options:
                default = f"`model.{key}`" if key in inherited else _default(value)
                yield f"| {kind} | `{key}` | {default} | {_cell(value)} |\n"


if __name__ == "__main__":
    print(options_page(), end="")
