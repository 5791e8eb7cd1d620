"""The downloaded corpora, from small archives of the published form on a local server."""

import hashlib
import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from data import SPLITS, DataConfig, load_corpus, prepare
from data.corpora import downloaded
from data.text import to_bytes

from .server import Server

WIKITEXT = Path(__file__).parents[2].parent / "shared/data/wikitext-2-small"
ARTICLE = (
    " \n = {} = \n \n The <unk> of {} , caf\u00e9 . \n \n = = Section = = \n \n More text . \n"
)
TOKENS = {
    "train": "".join(ARTICLE.format(title, title) for title in ("One", "Two = 2", "Three")) * 9,
    "valid": ARTICLE.format("Four", "Four") + " \n",
    "test": ARTICLE.format("Five", "Five") + ARTICLE.format("<unk>", "Six") + " \n",
}


@pytest.fixture
def publish(server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts an archive of these members on the server in the place of a corpus's published one."""

    def put(corpus: str, members: Mapping[str, bytes]) -> None:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as opened:
            for name, content in members.items():
                opened.writestr(name, content)
        raw = file.getvalue()
        server.answers["/archive"] = lambda handler: handler.give(200, raw)
        archives = downloaded.ARCHIVES
        archive = replace(
            archives[corpus],
            addresses=(server.address("/archive"),),
            sha256=hashlib.sha256(raw).hexdigest(),
            limit=len(raw),
            size=len(raw) if archives[corpus].size else None,
        )
        monkeypatch.setitem(archives, corpus, archive)

    return put


def wikitext_members(name: str = "wikitext-2") -> dict[str, bytes]:
    return {f"{name}/wiki.{split}.tokens": text.encode() for split, text in TOKENS.items()}


def data(corpus: str, **more: object) -> DataConfig:
    return DataConfig.model_validate({"corpus": corpus, **more})


@pytest.mark.parametrize("name", ["wikitext-2", "wikitext-103"])
def test_wikitext_has_one_document_an_article_and_loses_no_byte(
    publish: Callable[..., None], tmp_path: Path, name: str
) -> None:
    publish(name, wikitext_members(name))
    corpus = load_corpus(data(name), tmp_path, tmp_path / "cache")
    assert corpus.name == name
    assert corpus.notes["documents"] == {"train": 27, "valid": 1, "test": 2}
    # By hand: an article has 3 + 7 + 5 + 3 words in 8 lines; one more line ends the split.
    assert corpus.notes["words"] == {"valid": 26 + 1, "test": 2 * 26 + 1}
    for split, text in TOKENS.items():
        documents = list(corpus.documents(split))  # type: ignore[arg-type]
        assert "".join(document.text for document in documents) == text
        assert all(document.text.startswith(" \n = ") for document in documents)
        assert len({document.name for document in documents}) == len(documents)
    ready = prepare(data(name, tokenizer={"kind": "bytes"}), tmp_path, tmp_path / "cache")
    for split, text in TOKENS.items():
        assert ready.tokenizer.decode_bytes(ready.tokens[split]) == text.encode()  # type: ignore[index]
    assert [ready.words(split) for split in SPLITS] == [None, 27, 53]


def test_a_capped_split_has_no_count_of_words(publish: Callable[..., None], tmp_path: Path) -> None:
    """The count of the whole text would make its perplexity far too low."""
    publish("wikitext-2", wikitext_members())

    def words(**caps: int) -> list[int | None]:
        config = data("wikitext-2", tokenizer={"kind": "bytes"}, **caps)
        ready = prepare(config, tmp_path, tmp_path / "cache")
        return [ready.words(split) for split in ("valid", "test")]

    whole = len("".join(TOKENS["test"]).encode()) + 2  # two articles
    assert words(test_tokens=whole - 1) == [27, None]
    assert words(test_tokens=whole, validation_tokens=9) == [None, 53]


@pytest.mark.parametrize(
    ("lines", "articles"),
    [
        ([" \n", " = One = \n", " \n", " text \n", " \n", " = Two = \n", " \n", " text \n"], 2),
        ([" \n", " = One = \n", " \n", " = Two = \n", " \n"], 2),
        ([" \n", " = One = \n", " \n", " text \n", " \n", " = = Two = = \n", " \n", " text \n"], 1),
        ([" \n", " = One = \n", " \n", " text \n", " = k = \n", " text \n"], 1),
        ([" \n", " = One = \n", " \n", " text \n", " \n", " = k = \n", " text \n"], 1),
        ([" \n", " = One = \n", " \n", " text \n", " = k = \n", " \n"], 1),
        ([" \n", " = One = \n", " \n", " text \n", " \n", " = Two = = \n", " \n"], 1),
        ([" \n", " = One = \n", " \n", " text \n", " \n", " = = Two = \n", " \n"], 1),
        ([" \n", " = One = \n", " \n", " text \n", " \n", " = Two = 2 = \n", " \n"], 2),
        ([" \n", " = One = \n", " \n", " text \n", " \n", " = = = \n", " \n"], 1),
        ([" text \n", " \n", " = One = \n", " \n", " text without an end"], 2),
        ([], 0),
    ],
)
def test_articles_begin_at_a_title_between_blank_lines(lines: list[str], articles: int) -> None:
    found = list(downloaded.cut_articles(line.encode() for line in lines))
    assert len(found) == articles
    assert b"".join(found) == "".join(lines).encode()


@pytest.mark.skipif(not WIKITEXT.is_dir(), reason="shared/data/wikitext-2-small is not here")
@pytest.mark.parametrize(("split", "articles"), [("train", 60), ("valid", 30), ("test", 30)])
def test_real_articles_are_counted_as_published(split: str, articles: int) -> None:
    raw = (WIKITEXT / f"{split}.txt").read_bytes()
    found = list(downloaded.cut_articles(io.BytesIO(raw)))
    assert len(found) == articles
    assert b"".join(found) == raw
    if split == "train":  # the published test file, of 245,569 words with end of line
        assert len(raw) == 1_256_449
        assert downloaded.count_words(raw.decode()) == 245_569


LINE = "<page>caf\u00e9 \U0001f600 The quick brown fox jumps over the lazy dog.\n".encode()
RAW = LINE * 40 + b"\xff\xe2\x96" + b"tail\n" * 30


@pytest.fixture
def small_hundred(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The three parts of RAW, cut inside characters."""
    sizes = {"train": len(LINE) * 30 + 10, "valid": len(LINE) * 5 + 3}
    sizes["test"] = len(RAW) - sum(sizes.values())
    monkeypatch.setattr(downloaded, "HUTTER_SIZES", sizes)
    first, second = sizes["train"], sizes["train"] + sizes["valid"]
    return {"train": RAW[:first], "valid": RAW[first:second], "test": RAW[second:]}


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_enwik8_splits_at_exact_bytes_and_comes_back_with_both_tokenizers(
    publish: Callable[..., None],
    tmp_path: Path,
    small_hundred: dict[str, bytes],
    kind: str,
) -> None:
    with pytest.raises(UnicodeDecodeError):
        small_hundred["train"].decode()
    publish("enwik8", {"enwik8": RAW})
    tokenizer = {"kind": kind} | ({"vocabulary": 300} if kind == "bpe" else {})
    config = data("enwik8", tokenizer=tokenizer)
    corpus = load_corpus(config, tmp_path, tmp_path)
    ready = prepare(config, tmp_path, tmp_path)
    for split in SPLITS:
        raw = small_hundred[split]
        (document,) = corpus.documents(split)
        assert to_bytes(document.text) == raw
        assert ready.tokenizer.decode_bytes(ready.tokens[split]) == raw
        assert ready.tokenizer.byte_length_V[ready.tokens[split]].sum() == len(raw)
        assert (ready.tokens[split] == ready.tokenizer.doc_id).sum() == 1


def test_addresses_of_ones_own_replace_the_published_ones(
    server: Server, publish: Callable[..., None], tmp_path: Path
) -> None:
    publish("wikitext-2", wikitext_members())
    elsewhere = [server.address("/gone"), server.address("/mirror")]
    server.answers["/mirror"] = server.answers["/archive"]
    load_corpus(data("wikitext-2", addresses=elsewhere), tmp_path, tmp_path)
    assert server.asked == ["/gone", "/mirror"]
