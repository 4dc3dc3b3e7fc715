from __future__ import annotations

import sys

import pytest

from kafkaclient.twins import load_twin


@pytest.fixture
def modules(tmp_path, monkeypatch):
    """A folder of modules to choose from, whose names nobody else uses."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("KAFKACLIENT_PURE_PYTHON", raising=False)
    yield tmp_path
    for name in ("twin_of_a_kind", "twin_of_a_kind_py"):
        sys.modules.pop(name, None)


def test_the_compiled_module_comes_first(modules):
    (modules / "twin_of_a_kind.py").touch()
    (modules / "twin_of_a_kind_py.py").touch()
    module, compiled = load_twin("twin_of_a_kind")
    assert (module.__name__, compiled) == ("twin_of_a_kind", True)


def test_without_it_the_pure_one_is_taken(modules):
    (modules / "twin_of_a_kind_py.py").touch()
    module, compiled = load_twin("twin_of_a_kind")
    assert (module.__name__, compiled) == ("twin_of_a_kind_py", False)


@pytest.mark.parametrize(("value", "compiled"), [("1", False), ("0", True), ("", True)])
def test_the_environment_decides(modules, monkeypatch, value, compiled):
    (modules / "twin_of_a_kind.py").touch()
    (modules / "twin_of_a_kind_py.py").touch()
    monkeypatch.setenv("KAFKACLIENT_PURE_PYTHON", value)
    assert load_twin("twin_of_a_kind")[1] is compiled


def test_a_broken_extension_is_not_hidden(modules):
    (modules / "twin_of_a_kind.py").write_text("import no_such_module_at_all")
    (modules / "twin_of_a_kind_py.py").touch()
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        load_twin("twin_of_a_kind")
