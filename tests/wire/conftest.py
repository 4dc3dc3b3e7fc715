"""Everything that has a compiled and a pure-Python form is tested in both."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient.wire.codec  # quiets kafka-python's import, which the tests below also use
import kafkaclient.wire.records
from kafkaclient.twins import why_pure_python

if TYPE_CHECKING:
    from types import ModuleType

_WIRE = Path(kafkaclient.wire.records.__file__).parent


def _load(name: str, *, compiled: bool) -> ModuleType:
    """A private copy of a module that chose the compiled or the pure twin."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KAFKACLIENT_PURE_PYTHON", "0" if compiled else "1")
        why_pure_python.cache_clear()
        spec = importlib.util.spec_from_file_location(
            f"{name}_{'compiled' if compiled else 'pure'}", _WIRE / f"{name}.py"
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    why_pure_python.cache_clear()
    return module


_TWINS: dict[tuple[str, bool], ModuleType] = {
    (name, compiled): _load(name, compiled=compiled)
    for name in ("records", "murmur2", "record_columns")
    for compiled in (True, False)
}


def _twin(name: str, request: pytest.FixtureRequest) -> Any:
    module = _TWINS[name, request.param == "compiled"]
    if module.COMPILED is not (request.param == "compiled"):
        pytest.skip("the extension is not built; run setup.py build_ext --inplace")
    return module


@pytest.fixture(params=["compiled", "pure"], scope="session")
def records(request: pytest.FixtureRequest) -> Any:
    return _twin("records", request)


@pytest.fixture(params=["compiled", "pure"], scope="session")
def record_columns(request: pytest.FixtureRequest) -> Any:
    return _twin("record_columns", request)


@pytest.fixture(scope="session")
def both_columns() -> list[Any]:
    """The class of every form that is there, to be held against each other."""
    found = {kind: _TWINS["record_columns", kind] for kind in (True, False)}
    return [module.RecordColumns for kind, module in found.items() if module.COMPILED is kind]


@pytest.fixture(params=["compiled", "pure"], scope="session")
def murmur2(request: pytest.FixtureRequest) -> Any:
    return _twin("murmur2", request)
