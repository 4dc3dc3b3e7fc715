"""Everything that has a compiled and a pure-Python form is tested in both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, UUID, uuid5

import pytest

from kafkaclient.wire.codec import decode_request
from tests.forms import load_form

if TYPE_CHECKING:
    from types import ModuleType

    from kafkaclient.wire.api import Call

_FORMS: dict[tuple[str, bool], ModuleType] = {
    (name, compiled): load_form(f"kafkaclient.wire.{name}", compiled=compiled)
    for name in ("records", "murmur2", "record_columns")
    for compiled in (True, False)
}
_BUILT = "._" in repr(_FORMS["murmur2", True].murmur2.__module__)


def sent(call: Call[Any], version: int) -> Any:
    """A call's request, as a broker reads it."""
    frame = decode_request(call.encode(version, 1, "me")[4:])
    assert (frame.api_key, frame.version, frame.client_id) == (call.api_key, version, "me")
    return frame.message


def id_of(topic: str) -> UUID:
    return uuid5(NAMESPACE_OID, topic)


def _form(name: str, request: pytest.FixtureRequest) -> Any:
    if request.param == "compiled" and not _BUILT:
        pytest.skip("the extensions are not built; run make build")
    return _FORMS[name, request.param == "compiled"]


@pytest.fixture(params=["compiled", "pure"], scope="session")
def records(request: pytest.FixtureRequest) -> Any:
    return _form("records", request)


@pytest.fixture(params=["compiled", "pure"], scope="session")
def record_columns(request: pytest.FixtureRequest) -> Any:
    return _form("record_columns", request)


@pytest.fixture(scope="session")
def both_columns() -> list[Any]:
    """The class in every form that is there, to be held against each other."""
    forms = (True, False) if _BUILT else (False,)
    return [_FORMS["record_columns", compiled].RecordColumns for compiled in forms]


@pytest.fixture(params=["compiled", "pure"], scope="session")
def murmur2(request: pytest.FixtureRequest) -> Any:
    return _form("murmur2", request)
