"""The schema file that editors read is the schema."""

import json
from pathlib import Path

from model.blocks import BLOCKS
from nas.derivation import DERIVATIONS
from pipeline.experiment import Experiment, json_schema
from tools.options import options_page

ROOT = Path(__file__).resolve().parent.parent


def test_the_committed_schema_is_current():
    committed = (ROOT / "configs" / "experiment.schema.json").read_text(encoding="utf-8")
    assert committed == json_schema(), "run: make schema"


def test_the_schema_offers_what_is_registered():
    sections = json.loads(json_schema())["$defs"]
    derive, compare = sections["DeriveConfig"], sections["CompareConfig"]
    assert derive["properties"]["method"]["enum"] == list(DERIVATIONS)
    assert compare["properties"]["opponents"]["items"]["enum"] == list(DERIVATIONS)
    by_name = sections["ModelConfig"]["properties"]["candidates"]["items"]["anyOf"][0]
    assert by_name == {"enum": list(BLOCKS)}


def test_every_section_is_in_the_schema():
    assert set(json.loads(json_schema())["properties"]) == set(Experiment.model_fields)


def test_the_page_of_options_is_current():
    committed = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    assert committed == options_page(), "run: make schema"
