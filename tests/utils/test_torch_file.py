"""Torch files: both forms read to the bit, and hostile or damaged ones refused in one line."""

import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.torch_files import (
    Ordered,
    Raw,
    Writer,
    older_bytes,
    tensor,
    whole,
    word,
    write,
    zip_bytes,
    zip_members,
)
from utils import torch_file
from utils.torch_file import StoredTensor, open_torch_file

LINE = np.arange(4, dtype="<f4")
NESTED = b"(" * 50 + b"N" + b"t" * 50


def content() -> dict[str, Any]:
    """All that a checkpoint may hold."""
    generator = np.random.default_rng(0)
    return {
        "model": Ordered(
            {
                "module.a": generator.normal(size=(2, 3)).astype("<f4"),
                "module.b": generator.normal(size=(3, 2)).T,
                "module.c": generator.normal(size=(2, 1, 2)).astype("<f2"),
            }
        ),
        "logger": {"step": [1000, -3, 2**40, -(2**70)], "bpc": [1.5, None], 7: ("a", (), [], {})},
        "optimizer": {"state": {0: {"sum": np.arange(3)}}, "flag": [True, False]},
    }


def read(path: Path) -> Any:
    """The content, with its tensors."""
    with open_torch_file(path) as file:

        def whole_of(value: Any) -> Any:
            if isinstance(value, StoredTensor):
                return file.tensor(value)
            if isinstance(value, dict):
                return {key: whole_of(part) for key, part in value.items()}
            return value

        return whole_of(file.content)


def refused(path: Path, raw: bytes) -> str:
    """The line that a file is refused with."""
    path.write_bytes(raw)
    with pytest.raises(ValueError, match=re.escape(str(path))) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 300
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("older", [True, False])
def test_what_was_written_is_read(tmp_path: Path, older: bool) -> None:
    wanted, found = content(), read(write(tmp_path / "x.pt", content(), older=older))
    assert found["logger"] == wanted["logger"]
    assert found["optimizer"]["flag"] == [True, False]
    pairs = [(found["optimizer"]["state"][0]["sum"], np.arange(3))]
    pairs += [(found["model"][name], array) for name, array in wanted["model"].items()]
    for one, other in pairs:
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert np.array_equal(one, other)


def test_a_tensor_may_be_a_part_of_its_storage(tmp_path: Path) -> None:
    path, place = tmp_path / "x.pt", tensor("FloatStorage", "7", 12, 1, (3, 2), (4, 2))
    path.write_bytes(older_bytes(place, {"7": np.arange(12, dtype="<f4")}))
    with open_torch_file(path) as file:
        assert file.tensor(file.content).tolist() == [[1, 3], [5, 7], [9, 11]]


def place(**changed: Any) -> bytes:
    """A file of a tensor that says something else of its storage of four numbers."""
    of = {"kind": "FloatStorage", "key": "7", "numbers": 4, "offset": 0, "shape": (4,),
          "strides": (1,), **changed}  # fmt: skip
    return older_bytes(tensor(**of), {"7": LINE})


@pytest.mark.parametrize(
    ("opcodes", "said"),
    [
        (b"cos\nsystem\n(" + word("true") + b"tR", "names 'os system'"),
        (b"cposix\nsystem\n", "names 'posix system'"),
        (b"c__builtin__\neval\n", "names '__builtin__ eval'"),
        (b"ctorch._utils\n_rebuild_tensor\n", "names 'torch._utils _rebuild_tensor'"),
        (b"ctorch\nFloatStorage\n)R", "describes a tensor in an unknown way"),
        (b"ccollections\nOrderedDict\n((" + whole(1) * 2 + b"ttR", "describes a tensor in an un"),
        (b"ctorch._utils\n_rebuild_tensor_v2\n)R", "describes a tensor in an unknown way"),
        (b"NN\x85R", "needs a _Global, found a NoneType"),
        (b"(ios\nsystem\n", "has the opcode INST"),
        (b"(o", "has the opcode OBJ"),
        (b"N)\x81", "has the opcode NEWOBJ"),
        (word("os") + word("system") + b"\x93", "has the opcode STACK_GLOBAL"),
        (b"\x82\x01", "has the opcode EXT1"),
        (b"Px\n", "has the opcode PERSID"),
        (b"NQ", "needs a tuple"),
        ((b"(" + word("storage") + b"NNNNt") + b"Q", "describes a storage in an unknown way"),
        (
            b"(" + word("storage") + b"ccollections\nOrderedDict\n" + word("7") * 2 + b"K\x01tQ",
            "describes a storage in an unknown way",
        ),
        (b"N)b", "needs a dict"),
        (b"h\x07", "has the opcode BINGET"),
        (b"a", "takes what is not there"),
        (b"}Ne", "looks for a mark that is not there"),
        (b"}(NNu", "has a key that is neither"),
        (b"}" + NESTED + b"Ns", "has a key that is neither"),
        (b"}(" + word("a") + b"u", "has a key that is neither"),
        (b"NN", "makes nothing, or more than one thing"),
        (b"(N", "makes nothing, or more than one thing"),
        (b"\xff", "is no whole pickle (at position"),
        (b"X\xff\xff\xff\x7fab", "is no whole pickle (expected 2147483647 bytes"),
        (b"\x8d" + b"\xff" * 8, "is no whole pickle ("),
        (b"S" + b"x" * 900 + b"\n", "is no whole pickle ("),
    ],
)
def test_what_is_more_than_plain_tensors_is_refused(
    tmp_path: Path, opcodes: bytes, said: str
) -> None:
    for raw in (older_bytes(Raw(opcodes)), zip_bytes(zip_members(Raw(opcodes)))):
        assert said in refused(tmp_path / "x.pt", raw)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"shape": (5,)}, "larger than its storage"),
        ({"offset": 1}, "larger than its storage"),
        ({"offset": 2**70}, "larger than its storage"),
        ({"strides": (2,)}, "larger than its storage"),
        ({"shape": (2**62,), "strides": (0,)}, "larger than its storage"),
        ({"shape": (-1,)}, "in an unknown way"),
        ({"strides": (-1,)}, "in an unknown way"),
        ({"offset": -1}, "in an unknown way"),
        ({"strides": (1, 1)}, "in an unknown way"),
        ({"shape": (1,) * 40, "strides": (1,) * 40}, "in an unknown way"),
        ({"numbers": 2**62, "shape": (2**61,)}, "before the storage '7' does"),
        ({"numbers": 2**2000}, "before the storage '7' does"),
        ({"numbers": -1}, "describes a storage in an unknown way"),
        ({"numbers": 3, "shape": (3,)}, "'7' has another size"),
        ({"kind": "DoubleStorage"}, "before the storage '7' does"),
        ({"kind": "UntypedStorage"}, "names 'torch UntypedStorage'"),
        ({"key": "8"}, "names other storages than its tensors lie in"),
        ({"shape": (0, 2**40), "strides": (1, 1)}, "a tensor is empty"),
    ],
)
def test_sizes_are_compared_with_the_file(
    tmp_path: Path, changed: dict[str, Any], said: str
) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(place(**changed))
    with pytest.raises(ValueError, match=re.escape(said)), open_torch_file(path) as file:
        file.tensor(file.content)


def test_an_axis_of_one_entry_may_say_any_stride(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(place(shape=(1, 4), strides=(2**90, 1)))
    with open_torch_file(path) as file:
        assert file.tensor(file.content).tolist() == [[0, 1, 2, 3]]


def test_a_storage_has_one_size(tmp_path: Path) -> None:
    two = [tensor("FloatStorage", "7", n, 0, (n,), (1,)) for n in (4, 5)]
    said = refused(tmp_path / "x.pt", older_bytes(two, {"7": LINE}))
    assert "gives the storage '7' two sizes or types" in said


def test_every_storage_stands_in_the_file_once(tmp_path: Path) -> None:
    two = [tensor("FloatStorage", key, 4, 0, (4,), (1,)) for key in "78"]
    raw = older_bytes(two, {"7": LINE, "8": LINE})
    said = refused(tmp_path / "x.pt", raw.replace(word("8") + b"r", word("7") + b"r"))
    assert "names other storages than its tensors lie in" in said


def test_other_files_and_machines_are_refused(tmp_path: Path) -> None:
    path, good = tmp_path / "x.pt", older_bytes(content())
    for raw in (b"", b"PK", b"\x80\x02}.", b"\x80\x04" + good[2:], b"\x93NUMPY" * 9):
        assert refused(path, raw).startswith("is no file that torch.save wrote")
    big = good.replace(word("little_endian"), word("little_endiax"))
    assert "high byte" in refused(path, big)
    assert "version" in refused(path, good.replace(whole(1001) + b".", whole(1002) + b".", 1))
    with pytest.raises(ValueError, match="is not a file"):
        read(tmp_path)


def test_a_pickle_has_a_longest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_file, "MOST_OPCODES", 99)
    flood = Raw(b"]" + b"N0" * 60)
    assert "opcode POP" in refused(tmp_path / "x.pt", older_bytes(flood))
    assert "more than 99 opcodes" in refused(tmp_path / "x.pt", older_bytes([0] * 99))
    monkeypatch.setattr(torch_file, "MOST_PICKLE_BYTES", 200)
    assert "is no whole pickle" in refused(tmp_path / "x.pt", older_bytes(["x" * 200]))
    said = refused(tmp_path / "x.pt", zip_bytes(zip_members(["x" * 200])))
    assert "data.pkl has 2" in said


def test_a_list_that_holds_itself_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(older_bytes(Raw(b"]q\x00h\x00a")))
    with open_torch_file(path) as file:
        assert file.content[0] is file.content


def changed(**members: bytes | None) -> Callable[[], bytes]:
    """A zip with other members; None: without."""

    def made() -> bytes:
        names = {name.replace("__", "/").replace("_", "."): raw for name, raw in members.items()}
        kept = {**zip_members({"a": LINE}), **names}
        return zip_bytes({name: raw for name, raw in kept.items() if raw is not None})

    return made


def twice() -> bytes:
    whole_zip = changed(it__data__1=b"x")()
    return whole_zip.replace(b"it/data/1", b"it/data/0")


@pytest.mark.parametrize(
    ("method", "sizes"), [(8, (16, 16)), (0, (15, 16)), (0, (2**31, 2**31)), (0, (16, 2**31))]
)
def test_a_zip_may_not_say_that_more_comes_out_than_it_has(
    tmp_path: Path, method: int, sizes: tuple[int, int]
) -> None:
    raw = bytearray(changed()())
    entry = raw.rindex(b"it/data/0") - 46
    assert raw[entry : entry + 4] == b"PK\x01\x02"
    struct.pack_into("<H", raw, entry + 10, method)
    struct.pack_into("<II", raw, entry + 20, *sizes)
    said = refused(tmp_path / "x.pt", bytes(raw))
    assert said == "'it/data/0' is packed, or larger than the file"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (changed(**{"it__data__0": None}), "has no bytes of the storage '0', which needs 16"),
        (changed(**{"it__data__0": b"short"}), "has 5 bytes of the storage '0', which needs 16"),
        (changed(**{"it__data_pkl": None}), "has 0 pickles data.pkl"),
        (changed(**{"other__data_pkl": b"N."}), "has 2 pickles data.pkl"),
        (changed(it__byteorder=b"big"), "high byte"),
        (changed(**{"/etc/x": b""}), "holds the unsafe name '/etc/x'"),
        (lambda: zip_bytes({"it/../../x": b""}), "holds the unsafe name 'it/../../x'"),
        (lambda: zip_bytes({"it\\x": b""}), "holds the unsafe name"),
        (twice, "holds 'it/data/0' twice"),
        (lambda: zip_bytes(zip_members([LINE]), zipfile.ZIP_DEFLATED), "is packed, or larger"),
        (lambda: changed()().replace(LINE.tobytes(), LINE[::-1].tobytes()), "damaged (Bad CRC"),
    ],
)
def test_a_zip_is_looked_at_before_it_is_believed(
    tmp_path: Path, made: Callable[[], bytes], said: str
) -> None:
    assert said in refused(tmp_path / "x.pt", made())


@pytest.mark.parametrize("older", [True, False])
def test_no_damage_ends_in_anything_but_a_line(tmp_path: Path, older: bool) -> None:
    """Every file that ends early is refused; one with a byte changed is too, or is read."""
    small = {"model": Ordered({"a": LINE}), "n": [1, 2.0, "x", None]}
    path = write(tmp_path / "x.pt", small, older=older)
    raw = path.read_bytes()
    for end in range(0, len(raw), 7):
        refused(path, raw[:end])
    said = []
    for at in range(0, len(raw), 3):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ (1 << at % 8)]) + raw[at + 1 :])
        try:
            read(path)
        except ValueError as error:
            said.append(str(error))
    assert len(said) > len(raw) // 6
    assert all(line.startswith(f"{path}: ") and "\n" not in line for line in said)


def test_the_writer_writes_numbers_as_python_reads_them() -> None:
    assert whole(2**40)[2:] == (2**40).to_bytes(6, "little")
    assert Writer(older=True).pickled(1.5) == b"\x80\x02G" + struct.pack(">d", 1.5) + b"."
