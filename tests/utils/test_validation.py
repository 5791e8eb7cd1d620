"""The first problem of a file that nobody edits."""

import pytest
from pydantic import BaseModel, ValidationError

from utils.validation import first_problem


class _Inner(BaseModel):
    value: int


class _Outer(BaseModel):
    inner: _Inner


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"inner": {"value": "x"}, "other": 1}', "inner.value: Input should be a valid integer"),
        ("[]", "content: Input should be an object"),
        ("{", "content: Invalid JSON"),
    ],
)
def test_the_first_problem_has_its_key_or_is_of_the_whole(text: str, words: str) -> None:
    with pytest.raises(ValidationError) as error:
        _Outer.model_validate_json(text)
    assert first_problem(error.value).startswith(words)
