"""What may stand in the place of a file: kinds of files, and damages that are done to each.

A damage is a generator: it puts something in the place of a good file and yields what must be said
of it, as a pattern. None stands for: it is refused in any words, or read for what it says.
"""

import json
import os
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RANDOM_DAMAGES = 200
# A YAML of nine lines for 10**8 values: each level holds ten of the one before.
ALIASES = "a0: &a0 [x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join(10 * [f'*a{level - 1}'])}]\n" for level in range(1, 9)
)
Damage = Callable[["Kind", Path], Iterator[str | None]]


def _never(value: Any, content: bytes, whole: bytes) -> bool:
    """For files with a checksum: no changed file is read."""
    return False


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        name: of the file; a refusal names it, or one of `others` that are read with it.
        write: makes a good one in an empty folder.
        read: what reads it.
        lies: files that are well-formed, but not true.
        is_true: whether what was read is what a changed file says.
    """

    name: str
    write: Callable[[Path], object]
    read: Callable[[Path], Any]
    lies: Callable[[Path], Iterator[str | None]]
    is_true: Callable[[Any, bytes, bytes], bool] = _never
    others: tuple[str, ...] = ()

    def refusal(self, path: Path) -> str | None:
        """What is said of a file: few lines, each of which names it; None where it is read."""
        before = sorted(path.parent.rglob("*"))
        try:
            self.read(path)
            return None
        except (ValueError, OSError) as error:
            sort, message = type(error), str(error)
        # Not one of those that a codec or a parser raises, which know no path.
        assert sort is ValueError or issubclass(sort, OSError), sort
        assert sorted(path.parent.rglob("*")) == before
        lines = message.splitlines()
        assert all(any(name in line for name in (self.name, *self.others)) for line in lines)
        assert all(len(line) < 4000 for line in lines), message
        assert len(lines) <= 21
        return message

    def suffer(self, damage: Damage, path: Path) -> int:
        """Do every damage of a sort to a good file; how many there were."""
        whole, count = path.read_bytes(), 0
        for count, pattern in enumerate(damage(self, path), start=1):
            message = self.refusal(path)
            if message is None:
                assert pattern is None, (count, pattern)
                assert self.is_true(self.read(path), path.read_bytes(), whole), count
            else:
                assert re.search(pattern or "", message), message
        return count


def damaged(whole: bytes, seed: int) -> bytes:
    """A file that a disk, a program or a person has spoilt."""
    draw = random.Random(seed)
    place, other = sorted(draw.sample(range(len(whole)), 2))
    changed = bytearray(whole)
    match seed % 10:
        case 0:
            del changed[place:]
        case 1 | 2 | 3:  # a bit in the first bytes, near the beginning, anywhere
            changed[(place % 8, place // 4, place)[seed % 10 - 1]] ^= 1 << draw.randrange(8)
        case 4:  # a page of zeros, as a disk leaves it that lost a write
            page = place // 64 * 64
            changed[page : page + 64] = bytes(len(whole[page : page + 64]))
        case 5:
            return whole[other:] + whole[place:other] + whole[:place]
        case 6:
            changed += draw.randbytes(1 + draw.randrange(9))
        case 7:
            return draw.randbytes(place)
        case 8:
            del changed[place : place + draw.choice((1, 5, 40))]
        case 9:
            changed[place:place] = bytes([draw.choice(b'\xff\0{}[]",:0')])
    return bytes(changed)


def at_random(kind: Kind, path: Path) -> Iterator[None]:
    """Bits that flip, bytes that are lost, added or exchanged."""
    whole = path.read_bytes()
    for seed in range(RANDOM_DAMAGES):
        content = damaged(whole, seed)
        if content != whole:
            path.write_bytes(content)
            yield


def cut_short(kind: Kind, path: Path) -> Iterator[None]:
    whole = path.read_bytes()
    for keep in (0, 1, 2, 7, 8, 9, 300, len(whole) // 2, len(whole) - 9, len(whole) - 3):
        path.write_bytes(whole[:keep])
        yield


def no_files(kind: Kind, path: Path) -> Iterator[str]:
    """Nothing, a pipe, a folder, an endless device, a link to nowhere and a ring of links."""
    path.unlink()
    yield ""
    os.mkfifo(path)
    yield ""
    path.unlink()
    path.mkdir()
    yield ""
    path.rmdir()
    for target in ("/dev/zero", path.with_name("gone"), path):
        path.symlink_to(target)
        yield ""
        path.unlink()


def lies(kind: Kind, path: Path) -> Iterator[str | None]:
    return kind.lies(path)


DAMAGES: tuple[Damage, ...] = (at_random, cut_short, no_files, lies)

# Texts in the place of a JSON object.
NO_OBJECTS = (
    b"", b"{", b"[]", b"null", b"3", b'"x"', b"\xff", b'{"a": 1}x', b"\xef\xbb\xbf[]",
    b"[" * 10**5, b'{"a": ' * 10**5, b'{"a": ' + b"9" * 10**5 + b"}",
)  # fmt: skip


def no_objects(path: Path) -> Iterator[str]:
    for content in NO_OBJECTS:
        path.write_bytes(content)
        yield ""


def changed_objects(
    path: Path, changes: list[dict[str, Any]], *, names_key: bool = True
) -> Iterator[str]:
    """A JSON object with other values, none of which it may have."""
    whole = json.loads(path.read_bytes())
    for change in changes:
        path.write_text(json.dumps(whole | change))
        yield next(iter(change)) if names_key else ""


def says_what_is_read(value: Any, content: bytes, whole: bytes) -> bool:
    return bool(value == json.loads(content))


def flipped(whole: bytes, place: int) -> bytes:
    """With another bit at a place."""
    content = bytearray(whole)
    content[place] ^= 4
    return bytes(content)
