"""The container file: everything written comes back, everything damaged is refused."""

import hashlib
import io
import json
import os
import re
import struct
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

from pydirect.persistence import container
from pydirect.persistence.container import CorruptFileError, FileFormatError, KindError, VersionError, read, write

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
]
SHAPES = [(), (0,), (1,), (7,), (3, 0, 2), (2, 3), (4, 1, 5)]


def rebuilt(members, comment=None):
    """A file of these members, names and bytes, with the right checksum unless another comment is given."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = bytes(64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a name that occurs twice
            for name, data in members:
                archive.writestr(container._member(name), data)
    content = file.getvalue()[:-64]
    digest = hashlib.blake2b(content, digest_size=32).hexdigest().encode() if comment is None else comment
    return content + digest


def text_of(document):
    return document if isinstance(document, bytes) else json.dumps(document).encode("ascii")


def envelope(kind="model", header=None):
    return {"format_version": 1, "kind": kind, "header": {} if header is None else header}


EIGHT = b"{'descr': '|u1', 'fortran_order': False, 'shape': (8,), }\n"


def with_array(layout=EIGHT, data=bytes(range(8)), prefix=b"\x93NUMPY\x01\x00"):
    """Members of a file with one array of this description and these bytes."""
    array = prefix + len(layout).to_bytes(2, "little") + layout + data
    return [("header.json", text_of(envelope())), ("a.npy", array)]


def split(content):
    """Names and bytes of the members of a file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


# ------------------------------------------------------------------------------------------------------- round trips


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_round_trip_over_dtypes_and_shapes(path, dtype, shape):
    array = np.random.default_rng(0).integers(0, 100, size=shape).astype(dtype)
    write(path, "k", {}, {"first": array, "second": array})
    for name in ("first", "second"):
        back = read(path).arrays[name]
        np.testing.assert_array_equal(back, array, strict=True)
        assert back.flags.writeable and back.flags.c_contiguous and back.flags.owndata
        assert back.dtype.isnative


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24.0).reshape(4, 6).T,
        np.arange(24.0).reshape(4, 6)[::-2, 1::2],
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.broadcast_to(np.float32(2.0), (3, 2)),
        np.arange(5, dtype=">i4"),
        np.array(1.5, dtype=">f8"),
    ],
    ids=["transposed", "strided", "fortran", "broadcast", "big-endian", "big-endian 0-d"],
)
def test_any_memory_layout_is_stored_by_value(path, array):
    before = array.copy()
    write(path, "k", {}, {"a": array})
    back = read(path).arrays["a"]
    np.testing.assert_array_equal(back, before)
    np.testing.assert_array_equal(array, before)
    assert back.shape == array.shape and back.dtype.isnative
    assert back.flags.fnc == array.flags.fnc  # a matrix keeps its order, or BLAS would round its products differently


def test_header_round_trip(path):
    header = {
        "text": 'naïve " \\ \n \u2028 \U0001f600 \x00',
        "": {"lists": [[], {}, [None, True, False]]},
        "big": 2**200,
        "floats": [0.1, -0.0, 1e308, 5e-324],
    }
    write(path, "k", header, {})
    back = read(path).header
    assert back == header
    assert repr(back["floats"]) == repr(header["floats"])


@pytest.mark.parametrize("name", ["", "a/b", "ü", "\n", "a b", "x" * 1001, "a\0"])
def test_names_that_other_programs_may_change_are_refused(path, name):
    with pytest.raises(TypeError, match="expected names of letters"):
        write(path, "k", {}, {name: np.zeros(2)})
    assert not path.exists()


def test_numpy_reads_files_without_pickle(small):
    path, _ = small
    with np.load(path, allow_pickle=False) as archive:
        assert archive.files == ["header.json", "a", "b", "c"]
        assert json.loads(archive["header.json"])["kind"] == "model"
        for name, array in read(path).arrays.items():
            np.testing.assert_array_equal(archive[name], array, strict=True)


def test_golden_bytes(path):
    """The layout is a promise: files of this version stay readable, and are written the same."""
    write(path, "k", {"a": 1}, {"x": np.array([1, 256], dtype=np.uint16)})
    content = path.read_bytes()
    assert content[:41] == b"PK\x03\x04" + content[4:30] + b"header.json"
    assert content[41:].startswith(b'{"format_version":1,"kind":"k","header":{"a":1}}PK\x03\x04')
    assert b"\x01\x00\x00\x01PK\x01\x02" in content
    assert content[-64:].decode() == hashlib.blake2b(content[:-64], digest_size=32).hexdigest()


# ------------------------------------------------------------------------------------------------------------- kinds


def test_kind_is_checked(small):
    path, _ = small
    assert read(path, "model").kind == "model"
    assert read(path, ("statistics", "model")).kind == "model"
    with pytest.raises(KindError, match="expected a file of kind 'statistics' or 'other', got 'model'"):
        read(path, ("statistics", "other"))


def test_errors_name_path_and_reason(small):
    path, content = small
    path.write_bytes(content[:-1])
    with pytest.raises(CorruptFileError) as caught:
        read(path)
    assert caught.value.path == str(path)
    assert "truncated" in caught.value.reason
    assert str(caught.value) == f"{path}: {caught.value.reason}"
    assert issubclass(FileFormatError, ValueError)


# ------------------------------------------------------------------------------------------------ arguments of write


@pytest.mark.parametrize(
    ("kind", "header", "arrays", "message"),
    [
        ("", {}, {}, "kind: expected a non-empty str"),
        (3, {}, {}, "kind: expected a non-empty str, got 3"),
        ("k", [], {}, "header: expected a dict, got list"),
        ("k", {"a": {1: 2}}, {}, r"header\['a'\]: expected keys of type str, got 1"),
        ("k", {"a": {1, 2}}, {}, r"header\['a'\]: expected str, int, .* got set"),
        ("k", {"a": np.zeros(2)}, {}, r"header\['a'\]: expected str, int, .* got ndarray"),
        ("k", {"a": b"x"}, {}, "got bytes"),
        ("k", {"a": [0.0, np.nan]}, {}, r"\['a'\]\[1\]: expected a finite float"),
        ("k", {"a": np.float64(-np.inf)}, {}, r"header\['a'\]: expected a finite float"),
        ("k", {"a": "x" * 2**24}, {}, "at most 16777216 bytes of JSON"),
        ("k", {}, [np.zeros(2)], "arrays: expected a dict of ndarray, got list"),
        ("k", {}, {1: np.zeros(2)}, "arrays: expected names of letters"),
        ("k", {}, {"a": [1.0]}, r"arrays\['a'\]: expected a numpy.ndarray, got list"),
        ("k", {}, {"a": np.ma.masked_array([1.0])}, "got MaskedArray"),
        ("k", {}, {"a": np.array(["x"])}, r"arrays\['a'\]: expected dtype in .* got <U1"),
        ("k", {}, {"a": np.array([None])}, "got object"),
        ("k", {}, {"a": np.array(["2020-01-01"], dtype="M8[D]")}, "expected dtype in"),
        ("k", {}, {"a": np.zeros(2, dtype=[("x", "f8")])}, "expected dtype in"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_the_file_is_touched(path, kind, header, arrays, message):
    path.write_bytes(b"old")
    with pytest.raises((TypeError, ValueError), match=message):
        write(path, kind, header, arrays)
    assert path.read_bytes() == b"old"
    assert os.listdir(path.parent) == [path.name]


def test_header_depth_is_limited_alike_on_both_sides(path):
    def nested(levels):
        header = current = {}
        for _ in range(levels - 1):
            current["d"] = {}
            current = current["d"]
        return header

    write(path, "k", nested(64), {})
    assert read(path).header == nested(64)
    with pytest.raises(ValueError, match="at most 64 nested levels"):
        write(path, "k", nested(65), {})
    path.write_bytes(rebuilt([("header.json", text_of(envelope(header=nested(65))))]))
    with pytest.raises(CorruptFileError, match="nested deeper than 64"):
        read(path)


# ------------------------------------------------------------------------------------------------------------ damage


def test_every_altered_byte_is_refused(small):
    path, content = small
    for position in range(len(content)):
        for mask in (0x01, 0x80, 0xFF):
            altered = bytearray(content)
            altered[position] ^= mask
            path.write_bytes(altered)
            with pytest.raises(FileFormatError):
                read(path)


def test_every_truncation_is_refused(small):
    path, content = small
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(FileFormatError):
            read(path)


@pytest.mark.parametrize("tail", [b"\x00", b"\x00" * 64, b"garbage"])
def test_trailing_bytes_are_refused(small, tail):
    path, content = small
    path.write_bytes(content + tail)
    with pytest.raises(CorruptFileError, match="altered"):
        read(path)


def test_a_later_version_is_distinguished_from_damage(small):
    path, content = small
    (name, text), *arrays = split(content)
    path.write_bytes(rebuilt([(name, text.replace(b'"format_version":1', b'"format_version":2')), *arrays]))
    with pytest.raises(VersionError, match="file format 2"):
        read(path)


@pytest.mark.parametrize("content", [b"", b"x,y\n1,2\n", b"PK\x03\x04" + bytes(100), bytes(200)])
def test_other_files_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"not a pydirect file|empty file"):
        read(path)


def test_missing_file_and_directory(tmp_path):
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")
    with pytest.raises(FileFormatError, match="not a regular file"):
        read(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileFormatError, match="not a regular file"):
        read(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        write(tmp_path / "pipe", "k", {}, {})


def layout(descr="'|u1'", order="False", shape="(8,)"):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n".encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "header is not valid"),
        (b"{", "header is not valid"),
        (b"[]", "expected format_version, kind and header"),
        (b'{"format_version":1,"kind":"k","header":{"a":NaN}}', "expected a finite float, got NaN"),
        (b'{"format_version":1,"kind":"k","header":{"a":-Infinity}}', "expected a finite float, got -Infinity"),
        (b'{"format_version":1,"kind":"k","header":{"a":1e999}}', "expected a finite float"),
        (b'{"format_version":1,"kind":"k","header":{"a":1,"a":2}}', "a key occurs twice"),
        (b'{"format_version":1,"kind":"k","header":{"a":' + b"9" * 5000 + b"}}", "header is not valid"),
        (b'{"format_version":1,"kind":"\xff","header":{}}', "header is not valid"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a":' * 100_000, "nested deeper"),
        (b'"' + b'\\"' * 100_000, "header is not valid"),
        ({**envelope(), "extra": 1}, "expected format_version"),
        ({**envelope(), "format_version": 0}, "expected format_version"),
        ({**envelope(), "format_version": True}, "expected format_version"),
        (envelope(kind=""), "expected format_version"),
        (envelope(kind=1), "expected format_version"),
    ],
)
def test_headers_are_checked_even_when_checksums_are_right(path, text, message):
    path.write_bytes(rebuilt([("header.json", text_of(text))]))
    with pytest.raises(CorruptFileError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (with_array(prefix=b"\x93NUMPY\x02\x00"), "description is not valid"),
        (with_array(b"{}"), "description is not valid"),
        (with_array(b"(" * 60_000), "description is not valid"),
        (with_array(layout("'|O'")), "unknown dtype|description"),
        (with_array(layout("'|S8'", shape="()")), "unknown dtype"),
        (with_array(layout("'>f8'", shape="()")), "description is not valid"),
        (with_array(layout("[('x', '<f8')]", shape="()")), "description is not valid"),
        (with_array(layout(order="None")), "description is not valid"),
        (with_array(layout(shape="8")), "description is not valid"),
        (with_array(layout(shape="(-8,)")), "description is not valid"),
        (with_array(layout(shape="(8.0,)")), "description is not valid"),
        (with_array(layout(shape=f"({2**70},)")), "description is not valid"),
        (with_array(layout(shape="(8" + ", 1" * 32 + ")")), "impossible shape"),
        (with_array(layout(shape="(7,)")), "do not fit shape"),
        (with_array(layout(shape="(9,)")), "do not fit shape"),
        (with_array(layout(shape=f"({2**62}, {2**62})")), "do not fit shape"),
        (with_array(layout(shape=f"(0, {2**62}, {2**62})"), b""), "do not fit shape"),
        (with_array(layout(shape=f"({2**33},)")), "do not fit shape"),
        (with_array(layout("'|b1'")), "neither 0 nor 1"),
        (with_array()[::-1], "not a pydirect file"),
        (with_array()[1:], "not a pydirect file"),
        ([*with_array(), with_array()[1]], "occurs twice"),
        ([*with_array(), ("b.txt", b"")], "not the name of an array"),
        ([*with_array(), ("../b.npy", b"")], "not the name of an array"),
    ],
)
def test_arrays_are_checked_even_when_checksums_are_right(path, members, message):
    path.write_bytes(rebuilt(members))
    tracemalloc.start()
    with pytest.raises(FileFormatError, match=message):
        read(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000


def test_compressed_members_are_refused(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = bytes(64)
        archive.writestr("header.json", text_of(envelope(header={"a": " " * 2**20})))
    with pytest.raises(CorruptFileError, match="not stored as it should be"):
        read(path)


# ------------------------------------------------------------------------------------------------------------- fuzz


def mutate_bytes(rng, content):
    """Flip bits, overwrite, cut out, insert or splice, at random."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at, length = int(rng.integers(len(content) + 1)), int(rng.integers(1, 17))
        action = rng.integers(5)
        if action == 0 and at < len(content):
            content[at] ^= 1 << int(rng.integers(8))
        elif action == 1:
            content[at : at + length] = rng.bytes(length)
        elif action == 2:
            del content[at : at + length]
        elif action == 3:
            content[at:at] = rng.bytes(length)
        else:
            source = int(rng.integers(len(content) + 1))
            content[at : at + length] = content[source : source + length]
    return bytes(content)


def mutate_length_fields(rng, content):
    """Overwrite one of the numbers of the archive's directory by a plausible or an extreme one."""
    end = content.rindex(b"PK\x05\x06")
    starts = [m.start() for m in re.finditer(b"PK\x01\x02", content)]
    start = starts[rng.integers(len(starts))]
    in_entry = [(start + at, "<H") for at in (8, 10, 28, 30, 32)] + [(start + at, "<I") for at in (16, 20, 24, 42)]
    in_end = [(end + 8, "<H"), (end + 10, "<H"), (end + 12, "<I"), (end + 16, "<I"), (end + 20, "<H")]
    fields = in_entry + in_end
    offset, code = fields[rng.integers(len(fields))]
    old = struct.unpack_from(code, content, offset)[0]
    top = 2 ** (8 * struct.calcsize(code))
    new = int(rng.choice([0, 1, 63, 64, len(content) % top, top - 1, top // 2])) if rng.random() < 0.5 else old
    new = (new + int(rng.integers(-3, 4))) % top
    changed = bytearray(content)
    struct.pack_into(code, changed, offset, new)
    return bytes(changed)


STRANGE = [0, 1, -1, 8, 64, 2**31, 2**63, 2**70, 0.5, True, None, "", "a", "bool", "float64", [], [0], [2**40], {}]


def mutate_json(rng, document):
    """Replace, delete or copy one value somewhere in a JSON document, in place."""
    places = []

    def walk(node):
        keys = node if isinstance(node, dict) else range(len(node))
        for key in list(keys):
            places.append((node, key))
            if isinstance(node[key], (dict, list)):
                walk(node[key])

    walk(document)
    node, key = places[rng.integers(len(places))]
    other, other_key = places[rng.integers(len(places))]
    action = rng.integers(3)
    if action == 0:
        node[key] = STRANGE[rng.integers(len(STRANGE))]
    elif action == 1:
        node[key] = json.loads(json.dumps(other[other_key]))
    else:
        del node[key]


def mutate_and_sign(rng, content):
    """Alter the JSON, as a tree or as text, or the description of an array, and make the checksums right again."""
    members = split(content)
    choice = rng.random()
    if choice < 0.1 and len(members) > 1:
        k = int(rng.integers(1, len(members)))
        name, data = members[k]
        members[k] = name, mutate_bytes(rng, data[:128]) + data[128:]
    elif choice < 0.7:
        document = json.loads(members[0][1])
        mutate_json(rng, document)
        members[0] = "header.json", json.dumps(document).encode("ascii")
    else:
        members[0] = "header.json", mutate_bytes(rng, members[0][1])
    return rebuilt(members)
