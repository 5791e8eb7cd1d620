"""The downloaded corpora, from small archives of the published form on a local server."""

import hashlib
import io
import random
import re
import socket
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from data import SPLITS, CorpusPaths, DataConfig, load_corpus, prepare
from data.corpora import downloaded
from data.corpora.downloaded import Remote, fetch
from data.text import to_bytes

from .server import Server

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
        )
        monkeypatch.setitem(archives, corpus, archive)

    return put


def wikitext_members(name: str = "wikitext-2") -> dict[str, bytes]:
    return {f"{name}/wiki.{split}.tokens": text.encode() for split, text in TOKENS.items()}


def data(corpus: str, **more: object) -> DataConfig:
    return DataConfig.model_validate({"corpus": corpus, **more})


def test_wikitext_has_one_document_an_article_and_loses_no_byte(
    publish: Callable[..., None], tmp_path: Path
) -> None:
    name = "wikitext-2"
    publish(name, wikitext_members(name))
    corpus = load_corpus(data(name), CorpusPaths(tmp_path, tmp_path / "cache"))
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
    less = data(name, tokenizer={"kind": "bytes"}, test_tokens=20)
    capped = prepare(less, tmp_path, tmp_path / "cache")
    assert [capped.words(split) for split in SPLITS] == [None, 27, None]


@pytest.mark.parametrize(
    ("lines", "articles"),
    [
        ([" \n", " = One = \n", " \n", " text \n", " \n", " = Two = \n", " \n", " text \n"], 2),
        ([" \n", " = One = \n", " \n", " = Two = \n", " \n"], 2),
        ([" \n", " = One = \n", " \n", " text \n", " \n", " = = Two = = \n", " \n", " text \n"], 1),
        ([" \n", " = One = \n", " \n", " text \n", " = k = \n", " text \n"], 1),
        ([" \n", " = One = \n", " \n", " text \n", " = k = \n", " \n"], 1),
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
    publish: Callable[..., None], tmp_path: Path, small_hundred: dict[str, bytes], kind: str
) -> None:
    with pytest.raises(UnicodeDecodeError):
        small_hundred["train"].decode()
    publish("enwik8", {"enwik8": RAW})
    tokenizer = {"kind": kind} | ({"vocabulary": 300} if kind == "bpe" else {})
    config = data("enwik8", tokenizer=tokenizer)
    corpus = load_corpus(config, CorpusPaths(tmp_path, tmp_path))
    ready = prepare(config, tmp_path, tmp_path)
    for split in SPLITS:
        raw = small_hundred[split]
        (document,) = corpus.documents(split)
        assert to_bytes(document.text) == raw
        assert ready.tokenizer.decode_bytes(ready.tokens[split]) == raw
        assert ready.tokenizer.byte_length_V[ready.tokens[split]].sum() == len(raw)
        assert (ready.tokens[split] == ready.tokenizer.doc_id).sum() == 1


CONTENT = random.Random(0).randbytes(300_000)
WRONG = CONTENT[:-1] + bytes([CONTENT[-1] ^ 1])


@pytest.fixture
def server(server: Server) -> Server:
    server.answers["/good"] = lambda handler: handler.give(200, CONTENT)
    return server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "downloads"


def remote(server: Server, *paths: str) -> Remote:
    return Remote(
        "file.zip",
        tuple(server.address(path) for path in paths),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        limit=len(CONTENT),
    )


def refusal(server: Server, folder: Path, *paths: str) -> str:
    """What is said where no address gives the file."""
    with pytest.raises(ValueError, match="could not be downloaded") as caught:
        fetch(remote(server, *paths), folder, print)
    return str(caught.value)


def assert_whole(path: Path) -> None:
    """The right content, and nothing beside it."""
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]


def test_a_file_is_fetched_once_and_then_used(server: Server, folder: Path) -> None:
    told: list[str] = []
    assert_whole(fetch(remote(server, "/good"), folder, told.append))
    assert_whole(fetch(remote(server, "/good"), folder, print))
    assert server.asked == ["/good"]
    assert told[0] == f"file.zip: from {server.address('/good')}, at most 0.3 MB"
    assert 1 <= len(told) <= 12
    assert not any("\n" in line for line in told)


@pytest.mark.parametrize(
    ("body", "length", "message"),
    [
        (b"<html>Log in", None, "sent another file: 12 bytes, "),
        # It breaks off.
        (CONTENT[:7000], len(CONTENT), "sent another file: 7,000 bytes, "),
        (WRONG, -1, "sent another file: 300,000 bytes, not of the published SHA-256"),
        (CONTENT + b"!", None, "sent more than 300,000 bytes"),
    ],
)
def test_wrong_content_is_refused_and_removed_and_the_next_address_tried(
    server: Server, folder: Path, body: bytes, length: int | None, message: str
) -> None:
    server.answers["/wrong"] = lambda handler: handler.give(200, body, length)
    assert message in refusal(server, folder, "/wrong")
    assert not list(folder.iterdir())
    assert_whole(fetch(remote(server, "/wrong", "/good"), folder, print))
    assert server.asked[1:] == ["/wrong", "/good"]


@pytest.mark.parametrize("target", ["/loop", "file:///etc/passwd", "data:,x"])
def test_redirects_end_and_lead_to_the_web_only(server: Server, folder: Path, target: str) -> None:
    server.answers["/loop"] = lambda handler: handler.give(302, b"", Location=target)
    message = refusal(server, folder, "/loop")
    assert re.search(r"/loop: .*HTTP Error 302", message)
    assert len(server.asked) < 20
    assert not list(folder.iterdir())


def test_without_a_network_the_message_says_what_to_put_where(folder: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    addresses = (f"http://127.0.0.1:{port}/a/file.zip", "http://no-such-host.invalid/file.zip")
    lost = Remote("file.zip", addresses, sha256="ab" * 32, limit=9)
    with pytest.raises(ValueError, match=r"file\.zip is not here and could not be") as caught:
        fetch(lost, folder, print)
    message = str(caught.value)
    assert "Connection refused" in message
    for part in (*addresses, str(folder / "file.zip"), "ab" * 32):
        assert part in message
    assert not list(folder.iterdir())


def test_a_file_put_there_by_hand_is_checked_and_kept(server: Server, folder: Path) -> None:
    folder.mkdir(parents=True)
    by_hand = folder / "file.zip"
    by_hand.write_bytes(CONTENT)
    assert_whole(fetch(remote(server), folder, print))
    for content in (WRONG, CONTENT[:9]):
        by_hand.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"file\.zip: its SHA-256 is .*delete it and run again"
        ):
            fetch(remote(server, "/good"), folder, print)
        assert by_hand.read_bytes() == content
    assert not server.asked
