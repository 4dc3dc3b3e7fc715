from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kafkaclient
from kafkaclient.compiled_modules import (
    COMPILED,
    COMPILED_TOOLS,
    FORCE_PURE_PYTHON,
    NATIVE,
    _missing,
)
from tests.forms import load_form

AWAITS = (ast.Await, ast.AsyncFor, ast.AsyncWith)
PACKAGE = Path(kafkaclient.__file__).parent
BUILT = not _missing(PACKAGE, COMPILED + COMPILED_TOOLS + NATIVE)
SOURCE_OF = {name: name.replace("._", ".") for name in COMPILED + COMPILED_TOOLS}

SEND = """
import asyncio, logging, sys
logging.basicConfig(format="LOG %(message)s", level=logging.INFO)
from kafkaclient import Producer
from kafkaclient.testing.fake import FakeCluster
async def main():
    for _ in range(2):  # the second producer logs nothing
        fake = FakeCluster(brokers=1)
        fake.create_topic("t", 1)
        async with Producer(fake.bootstrap, dialer=fake) as producer:
            await producer.send_and_wait("t", b"1")
            await (await producer.send_many("t", [b"2", b"3"]))
asyncio.run(main())
from kafkaclient.compiled_modules import COMPILED
print("compiled" if any(name in sys.modules for name in COMPILED) else "pure")
from kafkaclient.producer.sender.wakeup import Wakeup
native = hasattr(Wakeup, "__mypyc_attrs__")
print("native" if native else "source")
import kafkaclient
assert kafkaclient.compiled is native
"""
REMEDY = "Install a wheel, which needs no C compiler, or install again where there is one"


def run(script: str, package: Path = PACKAGE, **environment: str) -> tuple[list[str], list[str]]:
    """The lines that a program printed, and those that it logged about its build."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(package.parent), FORCE_PURE_PYTHON: "0"} | environment,
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), re.findall("LOG running without.*", done.stderr)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package, of links, which may be removed."""
    without = shutil.ignore_patterns("__pycache__", "spark", "streams", "admin")
    copied = tmp_path / "kafkaclient"
    shutil.copytree(PACKAGE, copied, copy_function=os.symlink, ignore=without)
    return copied


def test_all_that_is_compiled_is_listed() -> None:
    setup = PACKAGE.parent / "setup.py"
    if not setup.exists():
        pytest.skip("not a source tree")
    sources = re.findall(r'^    "([\w/]+)\.pyx?",', setup.read_text(), re.MULTILINE)
    modules = [source.replace("/", ".").replace("._", ".") for source in sources]
    assert sorted(modules) == sorted(SOURCE_OF.values())


@pytest.mark.skipif(not BUILT, reason="nothing is compiled")
@pytest.mark.parametrize("source", SOURCE_OF.values())
def test_both_forms_offer_the_same(source: str) -> None:
    """And objects of the compiled form have no public attribute that those of the pure lack."""
    compiled, pure = (load_form(source, compiled=form) for form in (True, False))
    assert compiled.__all__ == pure.__all__
    for name in pure.__all__:
        one, other = getattr(compiled, name), getattr(pure, name)
        if isinstance(one, type):
            assert one.__module__ != other.__module__ or issubclass(one, tuple)
            offered = [{n for n in dir(kind) if not n.startswith("_")} for kind in (one, other)]
            assert offered[0] <= offered[1], name


@pytest.mark.skipif(not BUILT, reason="nothing is compiled")
def test_what_was_built_is_used() -> None:
    assert run(SEND) == (["compiled", "native"], [])


@pytest.mark.skipif(not BUILT, reason="nothing is compiled")
@pytest.mark.parametrize("name", ["producer/bulk/_rows", "wire/_murmur2", "metrics/_stats"])
def test_one_that_is_missing_keeps_all_out_of_use(package: Path, name: str) -> None:
    """And the log says so, once, and why."""
    for built in package.glob(f"{name}.*.so"):
        built.unlink()
    printed, (line,) = run(SEND, package)
    assert printed == ["pure", "source"]
    missing = f"kafkaclient.{name.replace('/', '.')}"
    assert line.endswith(f": not all of them were built, missing: {missing}. {REMEDY}")


def test_without_any_the_pure_ones_are_taken(package: Path) -> None:
    for built in package.rglob("_*.so"):
        built.unlink()
    printed, (line,) = run(SEND, package)
    assert printed == ["pure", "source"]
    assert line.endswith(f": they were not built. {REMEDY}")


@pytest.mark.skipif(not BUILT, reason="nothing is compiled")
@pytest.mark.parametrize("name", ["producer/sender/sender", "metrics/producer", "_native__mypyc"])
def test_without_one_that_mypyc_compiles_none_of_them_is_used(package: Path, name: str) -> None:
    for built in package.glob(f"{name}.*.so"):
        built.unlink()
    printed, (line,) = run(SEND, package)
    assert printed == ["compiled", "source"]
    assert line.endswith(f": not built: kafkaclient.{name.replace('/', '.')}. {REMEDY}")


@pytest.mark.skipif(not BUILT, reason="nothing is compiled")
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("wire/murmur2.py", ["pure", "source"]),
        ("wire/_records.pxd", ["pure", "source"]),
        ("producer/sender/sender.py", ["compiled", "source"]),
    ],
)
def test_in_a_source_tree_a_changed_source_counts_as_not_compiled(
    package: Path, name: str, printed: list[str]
) -> None:
    if not (PACKAGE.parent / "setup.py").exists():
        pytest.skip("not a source tree: the files of a wheel are written in any order")
    changed = package / name
    text = changed.read_bytes()
    changed.unlink()  # it is a link
    changed.write_bytes(text)
    assert run(SEND, package) == (["compiled", "native"], [])  # only a source tree is checked
    for file in ("setup.py", "MANIFEST.in"):
        (package.parent / file).touch()
    found, (line,) = run(SEND, package)
    assert found == printed
    assert f": kafkaclient/{name} has changed since it was compiled. make build" in line


@pytest.mark.skipif(not BUILT, reason="nothing is compiled")
def test_without_one_that_only_a_tool_uses_the_others_are_used(package: Path) -> None:
    for built in package.glob("perf/_slices.*.so"):
        built.unlink()
    assert run(f"{SEND}\nimport kafkaclient.perf.slices", package) == (["compiled", "native"], [])


def test_what_mypyc_compiles_loses_no_cause() -> None:
    """mypyc ignores the cause of ``raise X from Y``, also None (mypy 2.4)."""
    for name in NATIVE:
        tree = ast.parse((PACKAGE.parent / f"{name.replace('.', '/')}.py").read_text())
        raised = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
        assert not [node.lineno for node in raised if node.cause is not None], name


def test_what_mypyc_compiles_never_waits() -> None:
    """kafkaclient/producer/suspension.py says why. And a wait in the handler of an exception would
    make the exception the context of unrelated errors, for as long as it lasts (mypy 2.4)."""
    for name in NATIVE:
        tree = ast.parse((PACKAGE.parent / f"{name.replace('.', '/')}.py").read_text())
        assert not [node.lineno for node in ast.walk(tree) if isinstance(node, AWAITS)], name


def test_no_attribute_is_taken_to_be_none_still() -> None:
    """mypy takes an attribute that was None in a function to be None until the function's end,
    whatever the function calls. mypyc's code raises TypeError if it is not None any more."""
    ops = PACKAGE.parent / "build" / "ops.txt"
    if not ops.exists():
        pytest.skip("mypyc has not left its intermediate code here")
    made_by: dict[str, str] = {}
    for line in ops.read_text().splitlines():
        if made := re.match(r"\s+(r\d+) = (.*)", line):
            register, operation = made.groups()
            if none := re.match(r"unbox\(None, (\w+)\)", operation):
                assert "Call" in made_by[none[1]] or "call" in made_by[none[1]], line
            made_by[register] = operation


@pytest.mark.skipif(not BUILT, reason="nothing is compiled")
@pytest.mark.parametrize(("value", "compiled"), [("1", False), ("", True)])
def test_the_environment_decides(value: str, compiled: bool) -> None:
    printed, lines = run(SEND, KAFKACLIENT_PURE_PYTHON=value)
    assert printed == (["compiled", "native"] if compiled else ["pure", "source"])
    assert len(lines) == (0 if compiled else 1)


@pytest.mark.skipif(not BUILT, reason="nothing is compiled")
def test_a_broken_extension_is_not_hidden(package: Path) -> None:
    (built,) = package.glob("wire/_murmur2.*.so")
    built.unlink()
    built.with_name("_murmur2.py").write_text("import no_such_module_at_all")
    failed = "try: import kafkaclient.wire.murmur2\nexcept ImportError as error: print(error)"
    assert run(failed, package)[0] == ["No module named 'no_such_module_at_all'"]


INNER = """
try:
    from kafkaclient.producer.producer import Producer
    from kafkaclient.compiled_modules import why_pure_python
    print(why_pure_python(), flush=True)
except ImportError as error:
    print(error, flush=True)
"""
SUBINTERPRETER = f"""
try:
    import _interpreters as interpreters
    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    run = interpreters.run_string
told = run(interpreters.create(), {INNER!r})
assert told is None, told
"""


def test_in_a_subinterpreter_it_works_or_is_refused_plainly() -> None:
    """The first interpreter of a process has it, a second one hears why it cannot."""
    printed, _ = run(SUBINTERPRETER)
    assert len(printed) == 1
    assert "main interpreter" in printed[0]
    printed, _ = run(f"import kafkaclient.producer.producer\n{SUBINTERPRETER}")
    assert len(printed) == 1
    assert "kafkaclient cannot be imported in this interpreter" in printed[0]
