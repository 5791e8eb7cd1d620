"""Experiment files with broken bytes, judged by a second reader."""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import yaml

from nas.derivation import DERIVATIONS
from nas.opponents import OPPONENTS
from pipeline.experiment import Experiment
from tests.mutation import CONFIGS, FILE, RICH, SIXTHS, Checked, refuse
from tests.sweep_judge import space_is_right


class StrictLoader(yaml.SafeLoader):
    """Plain PyYAML with the scalars of YAML 1.2's core schema and no equal keys."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [self.construct_object(name, deep=True) for name, _ in node.value]
        if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
            raise ValueError("keys")
        values = [self.construct_object(value, deep=True) for _, value in node.value]
        return dict(zip(names, values, strict=True))


for tag, pattern, first in (
    ("null", "~|null|Null|NULL|", "~nN"),
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?\d+", "-+0123456789"),
    ("float", r"[-+]?(\.\d+|\d+(\.\d*)?)([eE][-+]?\d+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
     "-+.0123456789"),
):  # fmt: skip
    names = [*first, ""] if tag == "null" else [*first]
    compiled = re.compile(f"(?:{pattern})$", re.ASCII)
    StrictLoader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", compiled, names)
for tag, construct in (("int", int), ("float", lambda text: float(text.replace(".inf", "inf")))):
    StrictLoader.add_constructor(
        f"tag:yaml.org,2002:{tag}", lambda loader, node, construct=construct: construct(node.value)
    )


def is_valid(raw: bytes) -> bool:
    """Whether a file is an experiment, found out another way than the scripts find out."""
    try:
        text = raw.decode("utf-8-sig")
        if re.search("[\x85\u2028\u2029]", text) or any(
            getattr(event, "tag", None) is not None for event in yaml.parse(text)
        ):
            return False
        value = yaml.load(text, StrictLoader)
        value = {name: inner for name, inner in value.items() if inner is not None or name not in
                 Experiment.model_fields}  # fmt: skip
        experiment = Experiment.model_validate_json(json.dumps(value), strict=True)
    except (ValueError, yaml.YAMLError, AttributeError):
        return False
    numbers = re.findall(r"-?\d+", json.dumps(value))
    assert all(abs(int(number)) < 2**63 for number in numbers)
    known = experiment.derive.method in DERIVATIONS
    known &= set(experiment.compare.opponents) <= {*DERIVATIONS, *OPPONENTS}
    return known and space_is_right(value)


def with_broken_bytes(name: str, raw: bytes, count: int) -> Iterator[tuple[str, bytes]]:
    """Bytes taken out, put in, exchanged or cut off at random places."""
    draw = random.Random(name)
    for number in range(count):
        changed = bytearray(raw)
        for _ in range(draw.choice((1, 1, 2, 5))):
            place, other = draw.randrange(len(changed)), draw.randrange(len(changed))
            match draw.choice(("out", "in", "swap", "flip", "cut", "twice")):
                case "out":
                    del changed[place : place + draw.choice((1, 1, 3, 20))]
                case "in":
                    changed[place:place] = bytes([draw.choice(b"\n\t :#-[{'\"0aZ\xff&*!|,.")])
                case "swap":
                    changed[place], changed[other] = changed[other], changed[place]
                case "flip":
                    changed[place] ^= 1 << draw.randrange(8)
                case "cut" if number % 5 == 0:
                    del changed[place:]
                case _:
                    changed[other:other] = changed[place : place + 12]
            changed = changed or bytearray(b"#")
        yield f"{name} {number}", bytes(changed)


@SIXTHS
def test_broken_bytes_are_judged_as_another_reader_judges_them(check: Checked, sixth: int) -> None:
    wrong, valid = [], 0
    bases = {path.stem: path.read_bytes() for path in CONFIGS} | {"rich": RICH.encode()}
    for base, content in bases.items():
        mutants = list(enumerate(with_broken_bytes(base, content, 40)))
        for number, (name, raw) in mutants[sixth::6]:
            code, err = check(refuse(name, raw), number)
            expected = is_valid(raw)
            valid += expected
            last = len(re.split(rb"\r\n?|\n", raw)) + 1
            for line in err.splitlines():
                found = re.match(rf"{FILE}:(\d+)(?::\d+)?: \S", line)
                if not found or int(found[1]) > last or not line.isprintable():
                    wrong.append(f"{name}: {line}")
            if code != (0 if expected else 2) or bool(err) == expected:
                wrong.append(f"{name}: valid {expected}, exit code {code}, {err[:200]}")
    assert wrong == []
    assert 10 < valid < 60
