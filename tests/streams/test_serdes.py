"""Keys and values as bytes, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.streams import Serde, Topic
from kafkaclient.streams.serdes import codec_of


@dataclass
class Line:
    text: str
    words: list[str] = field(default_factory=list)


class Point(msgspec.Struct):
    x: int
    y: float | None = None


class Total(TypedDict):
    number: int


lines = st.builds(Line, st.text(), st.lists(st.text()))
numbers = st.floats(allow_nan=False, allow_infinity=False)
points = st.builds(Point, st.integers(-(2**63), 2**63 - 1), st.none() | numbers)
CASES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (bytes, st.binary()),
    (str, st.text()),
    (int, st.integers()),
    (float, st.floats(allow_nan=False)),
    (bool, st.booleans()),
    (UUID, st.uuids()),
    (str | None, st.none() | st.text()),
    (Line, lines),
    (Point, points),
    (Point | None, st.none() | points),
    (Total, st.fixed_dictionaries({"number": st.integers(0, 9)})),
    (dict[str, int], st.dictionaries(st.text(), st.integers(0, 9))),
    (list[Line], st.lists(lines)),
    (int | str, st.integers(0, 9) | st.text()),
    (Serde(str.encode, bytes.decode), st.text()),
]


@given(data=st.data())
@pytest.mark.parametrize(("declared", "values"), CASES, ids=lambda each: str(each)[:30])
def test_what_is_written_is_read_back(
    data: st.DataObject, declared: Any, values: st.SearchStrategy[Any]
) -> None:
    codec = codec_of(declared, "it")
    value = data.draw(values)
    written = codec.write(value)
    assert written is None or isinstance(written, bytes)
    assert codec.read(written) == value


@given(pairs=st.lists(st.tuples(st.text(), st.integers(0, 9)), unique_by=lambda pair: pair[0]))
def test_equal_dicts_are_equal_keys(pairs: list[tuple[str, int]]) -> None:
    codec = codec_of(dict[str, int], "it")
    assert codec.write(dict(pairs)) == codec.write(dict(reversed(pairs)))


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        (bytes, "a", "type str is given for bytes"),
        (str, b"a", "type bytes is given for str"),
        (str, None, "None is given for str"),
        (int, 1.5, "type float is given for int"),
        (float, "1", "type str is given for float"),
        (bool, 1, "type int is given for bool"),
        (UUID, "x", "type str is given for UUID"),
        (Line, {"text": "a"}, "type dict is given for Line"),
        (Line, Line("a", [5]), r"for Line: Expected `str`, got `int` - at `\$.words"),  # type: ignore[list-item]
        (Total, {"number": "a"}, "type dict is given for Total: Expected `int`"),
        (dict[str, int], {"a": "b"}, "Expected `int`"),
        (Serde(len), b"a", "returned int, not bytes"),
    ],
)
def test_other_types_are_refused(declared: Any, value: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        codec_of(declared, "it").write(value)


@pytest.mark.parametrize(
    ("declared", "data"),
    [
        (str, None),
        (str, b"\xff"),
        (int, b"1.5"),
        (bool, b"1"),
        (UUID, b"x"),
        (Line, b"{}"),
        (Line, b'{"text":5}'),
        (Line, None),
    ],
)
def test_other_bytes_are_refused(declared: Any, data: bytes | None) -> None:
    with pytest.raises((TypeError, ValueError)):
        codec_of(declared, "it").read(data)


def test_special_floats_are_read_back() -> None:
    codec = codec_of(float, "it")
    assert math.isnan(codec.read(codec.write(math.nan)))
    assert codec.read(codec.write(math.inf)) == math.inf


async def test_serializers_get_the_topic_and_may_wait() -> None:
    class Registry:
        async def serialize(self, value: Any, context: Any) -> bytes:
            context.headers.append(("by", b"registry"))
            return f"{context.topic}/{context.field}/{value}".encode()

    headers: list[Any] = []
    codec = Topic("t", value=Registry()).value  # type: ignore[call-overload, arg-type, var-annotated]
    assert await codec.write_for(5, "t", "value", headers) == b"t/value/5"
    assert headers == [("by", b"registry")]
    assert not codec.readable
