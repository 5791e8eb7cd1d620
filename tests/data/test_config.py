"""Settings of a text that cannot be, or that would have no effect."""

from typing import Any

import pytest
from pydantic import ValidationError

from data import DataConfig


def of(corpus: str, **more: object) -> dict[str, object]:
    return {"corpus": corpus, **more}


def tokens(kind: str, **more: object) -> dict[str, object]:
    return of("pydoc-topics", tokenizer={"kind": kind, **more})


TREE = {"folder": "x", "include": ["*"]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (of("python_stdlib"), "found 'python_stdlib'; did you mean 'python-stdlib'"),
        (of("tree"), "tree: corpus tree needs a folder and include"),
        (of("tree", tree={**TREE, "include": []}), "at least 1 item"),
        (of("text8", tree=TREE), "tree: has no effect with corpus text8; leave it out or"),
        (of("pydoc-topics", addresses=["http://x/y"]), "addresses: has no effect with corpus pyd"),
        (of("text8", addresses=["file:///etc/passwd"]), "should match pattern"),
        (of("text8", addresses=[]), "at least 1 item"),
        (tokens("given"), "model: kind given needs it"),
        (tokens("given", model="x", vocabulary=400), "vocabulary: has no effect with"),
        (tokens("given", model="x", lower_case=True), "lower_case: has no effect with"),
        (tokens("bytes", lower_case=True), "lower_case: has no effect with kind bytes"),
        (tokens("bytes", vocabulary=300), "vocabulary: has no effect with kind bytes"),
        (tokens("bpe", model="x"), "model: has no effect with kind bpe, found x"),
        (tokens("unigrm"), "must be one of bpe, unigram, .* did you mean 'unigram'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        DataConfig.model_validate(settings)
