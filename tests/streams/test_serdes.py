"""Keys and values as bytes, and back."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from kafkaclient.errors import ConfigError
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


class Colour(Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Ledger:
    by_year: dict[int, float]
    tags: set[str]
    at: datetime | None = None


@dataclass
class Tree:
    children: list[Tree] = field(default_factory=list)


@dataclass
class LongLine(Line):
    length: int = 0


class Point3(Point):
    z: int = 0


class Plain: ...


class Model(BaseModel):
    a: int


class Metres(int): ...


@dataclass(eq=False)
class WithoutEq:
    parts: list[WithoutEq]
    weight: float | None = None


@dataclass
class Holder:
    model: Model


numbers = st.floats(allow_nan=False, allow_infinity=False)
colours = st.sampled_from(Colour)
ledgers = st.builds(
    Ledger,
    st.dictionaries(st.integers(0, 9), numbers),
    st.sets(st.text()),
    st.none() | st.datetimes(),
)
lines = st.builds(Line, st.text(), st.lists(st.text()))
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
    (dict[int, str], st.dictionaries(st.integers(-5, 99), st.text())),
    (dict[int | Colour, Ledger], st.dictionaries(st.integers(0, 9) | colours, ledgers)),
    (dict[date, int], st.dictionaries(st.dates(), st.integers(0, 9))),
    (Ledger, ledgers),
    (set[int], st.sets(st.integers(0, 99))),
    (tuple[int, str], st.tuples(st.integers(0, 9), st.text())),
    (Colour, colours),
    (datetime, st.datetimes()),
    (Tree, st.builds(Tree, st.lists(st.builds(Tree)))),
    (dict[str, Any], st.dictionaries(st.text(), st.integers(0, 9) | st.text() | st.none())),
    (dict, st.dictionaries(st.text(), st.lists(st.booleans()))),
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
        (Line, LongLine("a"), "type LongLine is given for Line: what is read back would differ"),
        (list[Line], [LongLine("a")], "would differ from it.*no fields of subclasses"),
        (Point | None, Point3(1), "type Point3 is given for Point: what is read back would"),
        (Point, Point(1, math.nan), "would differ from it. JSON has no NaN"),
        (float | str, math.nan, "given for float | str: Expected"),
        (Total, {"number": 1, "more": 2}, "would differ"),
        (WithoutEq, WithoutEq([WithoutEq([], math.nan)]), "would differ"),
        (dict, {"a": math.nan}, "type dict is given for dict: .* would differ"),
        (dict, {"a": {1}}, "would differ"),
        (dict, {"a": b"x"}, "would differ"),
        (dict, {"a": datetime(2020, 1, 1)}, "would differ"),  # noqa: DTZ001 - it has no time zone
        (dict, {1: "a"}, "type dict is given for dict: Only dicts with str keys"),
        (dict, {"a": Plain()}, "type dict is given for dict: .*Plain is unsupported"),
        (dict[int, str], {1.5: "a"}, "type dict is given for dict"),
        (list[int], (1, 2), "type tuple is given for list"),
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


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        (
            Plain,
            "it is .*Plain'>, which has no serde: msgspec cannot read .*Plain.*a dataclass, or a",
        ),
        (Model, "msgspec cannot read .*Model"),
        (Holder, "Holder.*msgspec cannot read .*Model"),
        (list[Plain | None], "msgspec cannot read .*Plain"),
        (Metres, "msgspec cannot read .*Metres"),
        (Counter, "msgspec cannot read .*Counter"),
        (object, "msgspec cannot read .*object"),
        (Any, "says nothing of what is written"),
        (type(None), "says nothing of what is written"),
        (dict[tuple[int, int], str], "JSON has no keys of tuple"),
        (dict[str | Line, str], "JSON has no keys of dataclass"),
    ],
)
def test_types_that_never_work_are_refused(declared: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        codec_of(declared, "it")


def test_objects_of_classes_without_equality_are_written() -> None:
    codec = codec_of(WithoutEq, "it")
    read = codec.read(codec.write(WithoutEq([WithoutEq([], 1.5)])))
    assert read.parts[0].weight == 1.5


def test_a_number_is_too_long() -> None:
    codec = codec_of(int, "it")
    with pytest.raises(
        ValueError, match=r"cannot be written, see sys\.set_int_max_str_digits: Exc"
    ):
        codec.write(10**4300)
    assert codec.read(codec.write(10**4299)) == 10**4299


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
