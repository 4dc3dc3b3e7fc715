from __future__ import annotations

import subprocess
import sys
from importlib.util import MAGIC_NUMBER
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pytest

from kafkaclient.spark import precompile
from kafkaclient.spark.precompile import add_compiled_modules

if TYPE_CHECKING:
    from pathlib import Path

_SOURCES = {
    "words/__init__.py": "from words.longer import COUNT",
    "words/longer.py": "import sys\nCOUNT = 3\nWHERE = __file__\n",
    "words/template.py": "this is {not} python",
    "words/data.json": "{}",
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "python/lib").mkdir(parents=True)
    with ZipFile(tmp_path / "python/lib/words.zip", "w") as written:
        for name, source in _SOURCES.items():
            written.writestr(name, source)
    return tmp_path


def _zip(home: Path) -> Path:
    return home / "python/lib/words.zip"


def run_in(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["precompile"])
    monkeypatch.setenv("SPARK_HOME", str(home))


def _imported_from(home: Path) -> str:
    code = "import words.longer as w; print(w.COUNT, w.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(_zip(home))},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_python_imports_the_compiled_modules(home: Path) -> None:
    assert _imported_from(home) == f"3 {_zip(home)}/words/longer.py"
    assert add_compiled_modules(_zip(home)) == 2
    assert _imported_from(home) == f"3 {_zip(home)}/words/longer.pyc"


def test_all_other_content_stays_and_a_second_run_changes_nothing(home: Path) -> None:
    add_compiled_modules(_zip(home))
    with ZipFile(_zip(home)) as first:
        content = {name: first.read(name) for name in first.namelist()}
    assert content.keys() == {*_SOURCES, "words/__init__.pyc", "words/longer.pyc"}
    assert all(content[name] == source.encode() for name, source in _SOURCES.items())
    add_compiled_modules(_zip(home))
    with ZipFile(_zip(home)) as second:
        assert {name: second.read(name) for name in second.namelist()} == content
    assert [path.name for path in _zip(home).parent.iterdir()] == ["words.zip"]


def test_another_python_ignores_the_compiled_modules(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precompile, "MAGIC_NUMBER", bytes(len(MAGIC_NUMBER)))
    add_compiled_modules(_zip(home))
    assert _imported_from(home) == f"3 {_zip(home)}/words/longer.py"


def test_a_broken_zip_stays_and_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _zip(home).write_bytes(b"not a zip")
    run_in(monkeypatch, home)
    assert precompile.main() == 1
    assert str(_zip(home)) in capsys.readouterr().err
    assert [path.name for path in _zip(home).parent.iterdir()] == ["words.zip"]


def test_the_command_counts_modules(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_in(monkeypatch, home)
    assert precompile.main() == 0
    assert "words.zip: 2 modules compiled for Python 3." in capsys.readouterr().out
    run_in(monkeypatch, home / "python")
    assert precompile.main() == 2
    assert "no zips in" in capsys.readouterr().err
