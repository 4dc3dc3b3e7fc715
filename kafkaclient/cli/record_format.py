"""Records as ``kafkaclient consume`` prints them and ``kafkaclient produce`` reads them."""

from __future__ import annotations

import base64
import binascii
import codecs
import json
import re
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkaclient.consumer import Record
    from kafkaclient.reader.batch import FetchedBatch, FetchedRecord

Printed: TypeAlias = "FetchedRecord | Record"
"""A record of a reader or of a consumer."""
Records: TypeAlias = "FetchedBatch | Sequence[Printed]"
Write: TypeAlias = Callable[["Records"], bytes]
"""What is printed of records."""

_VALUE: Callable[[Any], bytes | None] = itemgetter(1)  # of a (key, value)
_NO_LENGTH = b"-1"  # of a null, as kcat prints it
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_TOKEN = re.compile(r"%(.?)", re.DOTALL)


# --- a format of one's own, as kcat's -f ----------------------------------------------------------


def unescaped(text: str, flag: str) -> bytes:
    r"""The text with ``\n``, ``\t``, ``\0``, ``\xNN`` and so on replaced. Raises ConfigError."""
    try:
        return _ESCAPE.sub(lambda m: codecs.escape_decode(m[0])[0], text.encode())
    except ValueError as error:
        raise ConfigError(f"{flag} {text!r}: {error}") from error


def _number(name: str) -> Callable[[Printed], bytes]:
    return lambda record: b"%d" % getattr(record, name)


def _content(name: str) -> Callable[[Printed], bytes]:
    return lambda record: getattr(record, name) or b""


def _length(name: str) -> Callable[[Printed], bytes]:
    def length(record: Printed) -> bytes:
        content = getattr(record, name)
        return _NO_LENGTH if content is None else b"%d" % len(content)

    return length


def _frame(record: Printed) -> bytes:
    """The value's length in four bytes, -1 for null."""
    length = -1 if record.value is None else len(record.value)
    return length.to_bytes(4, "big", signed=True)


def _header_text(record: Printed) -> bytes:
    return b",".join(b"%b=%b" % (name.encode(), value or b"") for name, value in record.headers)


_TOKENS: dict[str, Callable[[Printed], bytes]] = {
    "t": lambda record: record.topic.encode(),
    "p": _number("partition"),
    "o": _number("offset"),
    "T": _number("timestamp"),
    "k": _content("key"),
    "K": _length("key"),
    "s": _content("value"),
    "S": _length("value"),
    "R": _frame,
    "h": _header_text,
    "%": lambda _: b"%",
}


def written_as(text: str) -> Write:
    """Records in the form of ``--format``. Raises ConfigError for an unknown ``%`` token."""
    parts: list[bytes | Callable[[Printed], bytes]] = []
    end = 0
    for found in _TOKEN.finditer(text):
        parts.append(unescaped(text[end : found.start()], "--format"))
        if found[1] not in _TOKENS:
            known = " ".join(f"%{token}" for token in _TOKENS)
            raise ConfigError(f"--format {text!r} has {found[0]!r}; there are {known}")
        parts.append(_TOKENS[found[1]])
        end = found.end()
    parts.append(unescaped(text[end:], "--format"))

    def write(records: Records) -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else part(record)
            for record in records
            for part in parts
        )

    return write


def written_as_lines(records: Records) -> bytes:
    """Values, one a line."""
    from kafkaclient.reader.batch import FetchedBatch

    if isinstance(records, FetchedBatch):  # four times as fast as its records
        values: list[bytes | None] = list(map(_VALUE, records.pairs()))
    else:
        values = [record.value for record in records]
    if None in values:
        values = [value or b"" for value in values]
    values.append(b"")
    return b"\n".join(values)  # type: ignore[arg-type]


def written_with_keys(delimiter: bytes) -> Write:
    """The key, the delimiter and the value, one record a line."""
    return lambda records: b"".join(
        b"%b%b%b\n" % (record.key or b"", delimiter, record.value or b"") for record in records
    )


# --- JSON lines, the same for both commands -------------------------------------------------------


def written_as_json(records: Records) -> bytes:
    lines = [json.dumps(_object(record), ensure_ascii=False) for record in records]
    return "\n".join([*lines, ""]).encode()


def _object(record: Printed) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_field("key", record.key),
        **_field("value", record.value),
        "headers": [{"key": name} | _field("value", value) for name, value in record.headers],
    }


def _field(name: str, content: Any) -> dict[str, Any]:
    """The content under its name, or what is no text under ``NAME_base64``. A decoded value is
    JSON already."""
    if not isinstance(content, bytes):
        return {name: content}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


class Row(NamedTuple):
    """A record to send, without what the command line says of all."""

    value: Any
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


_OF_A_LINE = {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}


def row_of_json(line: bytes) -> Row:
    """The record of a line as ``consume --json`` prints it; ``topic`` and ``offset`` are ignored.
    A value that is no text is sent as JSON. Raises ValueError with the reason."""
    try:
        given = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - one kind for who reads lines
    unknown = {name.removesuffix("_base64") for name in given} - _OF_A_LINE
    if unknown:
        raise ValueError(f"unknown {', '.join(sorted(unknown))}; there are {', '.join(_OF_A_LINE)}")
    headers = given.get("headers") or []
    if isinstance(headers, dict):
        headers = [{"key": name, "value": value} for name, value in headers.items()]
    if not all(isinstance(each, dict) and isinstance(each.get("key"), str) for each in headers):
        raise ValueError('headers: give [{"key": ..., "value": ...}, ...]')
    return Row(
        value=_content_of(given, "value"),
        key=_content_of(given, "key"),
        headers=tuple((each["key"], _content_of(each, "value")) for each in headers),
        partition=_int_of(given, "partition"),
        timestamp_ms=_int_of(given, "timestamp"),
    )


def _content_of(given: dict[str, Any], name: str) -> bytes | None:
    encoded = given.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise ValueError(f"{name}_base64 is not base64") from None
    content = given.get(name)
    if content is None:
        return None
    return (content if isinstance(content, str) else json.dumps(content)).encode()


def _int_of(given: dict[str, Any], name: str) -> int | None:
    number = given.get(name)
    if number is None or (name == "timestamp" and number == -1):
        return None
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError(f"{name} {number!r} is no number")  # noqa: TRY004 - as above
    return number
