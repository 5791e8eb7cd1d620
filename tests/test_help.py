"""`--help` of every script, tool and benchmark says what an option is where it is left out."""

import argparse
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from model.cutoffs import DEFAULT_HEAD_MASS, MEASURED

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in [*ROOT.glob("*.py"), *ROOT.glob("tools/*.py"), *ROOT.glob("benchmarks/**/*.py")]
    if "parse_args(" in (text := path.read_text(encoding="utf-8")) and "\ndef main(" in text
)
# Left out they mean nothing, and not a value: more settings, a further output, one of two ways.
WITHOUT = {"--set", "--json", "--sizes", "--layout", "--layouts", "--variant"}


class Parsed(Exception):
    """A parser was asked to parse."""


def parser_of(module: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    def parse_args(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise Parsed(parser)

    with monkeypatch.context() as patched:
        patched.setattr(argparse.ArgumentParser, "parse_args", parse_args)
        patched.setattr("sys.argv", [module])
        with pytest.raises(Parsed) as parsed:
            importlib.import_module(module).main()
    parser: argparse.ArgumentParser = parsed.value.args[0]
    return parser


def with_commands(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from with_commands(command)


def shown(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """The lines of --help about an option, as one."""
    formatter = parser._get_formatter()
    formatter._width = 10_000
    formatter.add_argument(action)
    return " ".join(formatter.format_help().split())


def test_the_scripts_are_found() -> None:
    assert {"search", "sweep", "tools.confirm", "benchmarks.layoutbench.__main__"} < set(MODULES)
    assert len(MODULES) > 30


@pytest.mark.parametrize("module", MODULES)
def test_every_option_says_its_default(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = []
    for parser in with_commands(parser_of(module, monkeypatch)):
        for action in parser._actions:
            hidden = action.help == argparse.SUPPRESS or action.required or action.nargs == 0
            if hidden or not action.option_strings or action.option_strings[0] in WITHOUT:
                continue
            words = shown(parser, action)
            value = action.default not in (None, argparse.SUPPRESS, "")
            given, said = (re.sub(r"[\[\]', ]", "", str(one)) for one in (action.default, words))
            if (f"(default:{given})" if value else "default") not in said:
                silent.append(f"{parser.prog}: {words}")
    assert silent == []


def test_the_defaults_of_the_cutoffs_are_those_of_the_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cannot be read from the model without importing torch, which --help must not."""
    text = " ".join(parser_of("tools.cutoffs", monkeypatch).format_help().split())
    for number in (MEASURED.launch_s, MEASURED.multiply_add_s, MEASURED.logit_s):
        assert f"(default: {number:g})" in text
    assert f"get cheaper (default: {MEASURED.threshold:g})" in text.replace("gets", "get")
    assert f"of the tokens (default: {DEFAULT_HEAD_MASS:g})" in text


def test_a_default_with_a_percent_sign_or_none_is_no_trap() -> None:
    from pipeline import cli

    parser = cli.tool_parser("x", "doc")
    parser.add_argument("--share", default="50%")
    parser.add_argument("--none", help="words")
    parser.add_argument("--flag", action="store_true", help="on")
    parser.add_argument("--said", default=3, help="three (default 3)")
    text = parser.format_help()
    assert "(default: 50%)" in text
    assert text.count("default") == 2
