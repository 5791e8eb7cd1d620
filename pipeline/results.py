"""result.json of retrainings, read and checked, and whether several were validated alike."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from utils.files import read_object


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Scores(_Part):
    nats_per_token: float = Field(ge=0)
    perplexity: float = Field(ge=1)
    bits_per_byte: float | None = Field(ge=0)  # none where text may be lost
    tokens: int = Field(ge=1)
    bytes: int | None = Field(ge=1)
    # Absent where the words are not known, but never null.
    word_perplexity: float = Field(default=1, ge=1)
    words: int = Field(default=1, ge=1)


class _Result(_Part):
    """What others read of it; more may stand there."""

    name: str = Field(max_length=200)
    seed: int = Field(ge=0)
    layout: str
    steps: int = Field(ge=1)
    best_step: int = Field(ge=0)
    parameters: int = Field(ge=0)
    flops_per_token: float = Field(ge=0)
    validations: int = Field(ge=0)
    valid: _Scores
    test: _Scores


def read_result(path: Path) -> dict[str, Any]:
    """The content of a result.json.

    Raises:
        ValueError: it is damaged; one line names the first key that is wrong.
        OSError: it cannot be read.
    """
    remedy = "remove it and run retrain.py or compare.py again"
    content = read_object(path, remedy)
    try:
        _Result.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"{path}: {where}: {first['msg']}; {remedy}") from None
    return content


def check_validations(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Raise ValueError where one side could choose its best step among more than another."""
    counts = {name: [r["validations"] for r in found] for name, found in results.items()}
    if len({count for found in counts.values() for count in found}) > 1:
        shown = ", ".join(f"{name} {found}" for name, found in counts.items())
        raise ValueError(
            f"run.validate_every: differed between the retrainings (validations: {shown}), so "
            "their best steps were chosen among more or fewer; train them alike in another --run"
        )
