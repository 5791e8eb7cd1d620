"""Print docs/options.md: every key of an experiment file, from the schema itself.

python -m docs.make_options > docs/options.md
"""

import json
from collections.abc import Iterator
from typing import Any

HEADER = """\
# Options of an experiment file

These are all keys of an experiment file. Set a key in the file or with `--set section.key=value`.
Of several choices the default is bold; without any default a key is `null`, which means not set.

- Two blocks are one Transformer layer; `dense` is a feed-forward block.
- alpha are the architecture parameters of a search, pi = softmax(alpha) the probabilities of the
  candidates in each block, and tau the temperature of the Gumbel softmax that samples them.
- A limit is the most that a layout may cost: with a unit, or `0.65x` for 0.65 times the cost of the
  reference layout.

`make schema` writes this page, and a test keeps it equal to the code.
"""
CANDIDATES = """
## candidates

An entry of `model.candidates` is a kind, or a kind with a label and options:
`{kind: dense, label: dense_wide, d_ffn: 2048}`. An option that it leaves out has the value of the
same key in `model`, or the default below.

| kind | option | default | meaning |
|---|---|---|---|
"""
SECTIONS = ("run", "data", "model", "search", "derive", "retrain", "compare", "costs", "sweep")


def json_schema() -> str:
    """The JSON schema of an experiment file, for editors."""
    from model.blocks import BLOCKS
    from pipeline.experiment import Experiment

    schema = Experiment.model_json_schema()
    candidates = schema["$defs"]["ModelConfig"]["properties"]["candidates"]
    candidates["items"] = {"anyOf": [{"enum": list(BLOCKS)}, candidates["items"]]}
    return json.dumps(schema, indent=2) + "\n"


def options_page() -> str:
    """The whole page."""
    schema = json.loads(json_schema())
    parts, said = [HEADER], dict[str, str]()
    for section in SECTIONS:
        parts += [f"\n## {section}\n\n| key | default or choices | meaning |\n|---|---|---|\n"]
        parts += _rows(section, schema["properties"][section], schema["$defs"], said)
    parts += [CANDIDATES, *_candidate_rows(schema["$defs"])]
    return "".join(parts)


def _rows(
    name: str, entry: dict[str, Any], definitions: dict[str, Any], said: dict[str, str]
) -> Iterator[str]:
    """The rows of a key and of all below it; `said` is where a section was described before."""
    below = entry.get("additionalProperties")
    if isinstance(below, dict):
        yield f"| `{name}` | {_default(entry)} | {_cell(entry)} |\n"
        yield from _rows(f"{name}.KEY", below, definitions, said)
        return
    targets = [target for target in _references(entry) if target.endswith("Config")]
    if not targets:
        yield f"| `{name}` | {_choices(entry) or _default(entry)} | {_cell(entry)} |\n"
        return
    if (before := said.setdefault(targets[0], name)) != name:
        yield f"| `{name}` | as `{before}` | The same keys and defaults. |\n"
        return
    described = set()
    for inner in (definitions[target] for target in targets):
        for key, value in inner["properties"].items():
            # Two kinds of one section can have the same key: the first describes it.
            if key not in described:
                described.add(key)
                required = {"required": True} if key in inner.get("required", []) else {}
                yield from _rows(f"{name}.{key}", {**value, **required}, definitions, said)


def _references(entry: dict[str, Any]) -> list[str]:
    entries = [entry, *(part for key in ("anyOf", "allOf", "oneOf") for part in entry.get(key, []))]
    return [part["$ref"].rpartition("/")[2] for part in entries if "$ref" in part]


def _default(entry: dict[str, Any]) -> str:
    if entry.get("required") or "default" not in entry:
        return "(required)"
    if entry["default"] is None:
        return ""
    if isinstance(entry["default"], str):
        return f"`{entry['default']}`"
    if isinstance(entry["default"], list):
        kinds = [item["kind"] if isinstance(item, dict) else item for item in entry["default"]]
        return f"`{json.dumps(kinds)}`"
    return f"`{json.dumps(entry['default'])}`"


def _choices(entry: dict[str, Any]) -> str:
    """The choices of a key, the default in bold."""
    entries, default = (
        [entry, entry.get("items", {}), *entry.get("anyOf", [])],
        entry.get("default"),
    )
    chosen = default if isinstance(default, list) else [default]
    choices = [str(choice) for part in entries for choice in part.get("enum", [])]
    bold = [f"**{choice}**" if choice in chosen else choice for choice in choices]
    return ("(required) " if choices and entry.get("required") else "") + ", ".join(bold)


def _cell(entry: dict[str, Any]) -> str:
    return str(entry.get("description", "")).replace("|", "\\|")


def _candidate_rows(definitions: dict[str, Any]) -> Iterator[str]:
    inherited = definitions["ModelConfig"]["properties"]
    for name, definition in definitions.items():
        if not name.endswith("Options"):
            continue
        kind = definition["properties"]["kind"]["const"]
        options = [key for key in definition["properties"] if key not in ("kind", "label")]
        if same := [key for key in options if key in inherited]:
            yield f"| {kind} | {', '.join(f'`{key}`' for key in same)} | those of `model` | |\n"
        if not options:
            yield f"| {kind} | | | no options |\n"
        for key, value in definition["properties"].items():
            if key in options and key not in inherited:
                yield f"| {kind} | `{key}` | {_default(value)} | {_cell(value)} |\n"


if __name__ == "__main__":
    print(options_page(), end="")
