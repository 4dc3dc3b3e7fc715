"""Each code block of the documentation runs in a test, or is marked with the reason why not."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shlex
import sys
import tomllib
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from experiments.app import app as experiments
from kafkaclient.cli.app import app as kafkaclient
from kafkaclient.config import ProducerConfig
from tests.code_blocks import BLOCKS, PAGES, ROOT, Block, claims, parses, runs, select

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OPTIONS = {name for each in ProducerConfig.OPTIONS.values() for name in each.spellings}
OF_A_SHELL = {"cibuildwheel", "curl", "export", "git", "grep", "kill", "mvn"} | {
    "opentelemetry-instrument",
    "printf",
    "seq",
    "twine",
    "until",
    "wc",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
AIOKAFKA_TESTS = {"PRODUCER"}  # in the environment of `make aiokafka-tests`


def test_each_block_runs_or_has_a_reason() -> None:
    run = {block for claim in claims() if claim.runs for block in claim.blocks}
    marked = {block for block in BLOCKS if block.reason}
    left = [str(block) for block in BLOCKS if block not in run | marked]
    assert not left, "not run by a test, and without a reason"
    both = [str(block) for block in BLOCKS if block in run & marked]
    assert not both, "run by a test, and marked as not run"


def test_no_block_is_overlooked() -> None:
    fences = sum(
        len(re.findall(r"^\s*(?:```|~~~)", page.read_text("utf-8"), re.MULTILINE)) for page in PAGES
    )
    assert fences == 2 * len(BLOCKS)
    reasons = sum(
        len(re.findall("^ *<!-- not run", page.read_text("utf-8"), re.M)) for page in PAGES
    )
    assert reasons == sum(1 for block in BLOCKS if block.reason)
    assert [str(block) for block in BLOCKS if not block.language] == []


def test_blocks_are_taken_from_one_place() -> None:
    """So that no test runs a block without a claim."""
    here = {"tests/code_blocks.py", "tests/test_code_blocks.py"}
    for folder in ("tests", "integration"):
        for path in (ROOT / folder).rglob("*.py"):
            if str(path.relative_to(ROOT)) not in here:
                assert "```" not in path.read_text("utf-8"), path


def test_a_claim_without_a_run_fails() -> None:
    @runs("README.md", having="Producer")
    def reads_nothing(block: Block) -> None:
        assert block.source

    @runs("README.md", having="Producer")
    def takes_it(block: Block) -> None:
        assert block.text() == block.source

    (block,) = select("README.md", "python", having="Producer")
    takes_it(block=block)
    with pytest.raises(AssertionError, match="reads_nothing claims README"):
        reads_nothing(block=block)


@pytest.mark.parametrize(
    "block", [block for block in BLOCKS if block.language == "python"], ids=str
)
def test_python_compiles(block: Block) -> None:
    compile(block.source, block.page, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


# --- commands -------------------------------------------------------------------------------------


@parses("*", "console")
def test_commands_exist(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = block.commands
    assert commands
    for words in (part for command in commands for part in _piped(command.line)):
        while "=" in words[0]:
            del words[0]
        program = words.pop(0).rpartition("/")[2]
        if program == "python":
            monkeypatch.setattr(sys, "argv", words[1:])
            _check_python(words, {other.title for other in BLOCKS if other.page == block.page})
        elif program not in OF_A_SHELL:
            CHECKS[program](words)


def _piped(line: str) -> list[list[str]]:
    """The words of each command of a pipe."""
    words = shlex.split(line, comments=True)
    ends = [place for place, word in enumerate(words) if word == "|"]
    starts = [0, *(end + 1 for end in ends)]
    return [words[start:end] for start, end in zip(starts, [*ends, None], strict=True)]


def _check_kafkaclient(words: Sequence[str]) -> None:
    _parse(typer.main.get_command(kafkaclient), "kafkaclient", words)
    for flag, value in pairwise(words):
        if flag == "--command-property":
            assert value.partition("=")[0] in OPTIONS


def _parse(command: Any, name: str, words: Sequence[str], parent: Any = None) -> None:
    """Parse the words as the command does, which is not called."""
    if parent is None and words[0] in {option for each in command.params for option in each.opts}:
        return  # as --version, which needs no command
    try:
        context = command.make_context(name, [*words], parent=parent)
    except typer.BadParameter as error:  # unknown options are found before
        assert "does not exist" in str(error)  # noqa: PT017 - a file of the reader
        return
    rest = [*context._protected_args, *context.args]
    if hasattr(command, "resolve_command"):
        sub_name, sub_command, rest = command.resolve_command(context, rest)
        _parse(sub_command, sub_name, rest, context)
    else:
        assert not rest


def _check_pip(words: Sequence[str]) -> None:
    assert words[0] == "install"
    for word in words[1:]:
        if found := re.fullmatch(r"(?:kafkaclient|.*\.|.*\.whl\))\[([\w,-]+)\]", word):
            assert set(found[1].split(",")) <= PROJECT["optional-dependencies"].keys()


def _check_make(words: Sequence[str]) -> None:
    for word in words:
        name, is_variable, _ = word.partition("=")
        if is_variable:
            assert f"$({name})" in MAKEFILE or name in AIOKAFKA_TESTS, word
        else:
            assert re.search(rf"^{name}:", MAKEFILE, re.MULTILINE), word


def _check_python(words: Sequence[str], files: set[str]) -> None:
    match words:
        case ["-c", code]:
            compile(code, "-c", "exec")
        case ["-m", "experiments", *rest]:
            _parse(typer.main.get_command(experiments), "experiments", rest)
        case ["-m", "benchmarks.produce", *_]:
            importlib.import_module("benchmarks.produce.__main__")._arguments()
        case ["-m", module, *_]:
            assert importlib.util.find_spec(module)
        case [file, *_]:
            assert file in files or (ROOT / file).exists()


def _check_psql(words: Sequence[str]) -> None:
    assert (ROOT / words[words.index("-f") + 1]).exists()


CHECKS: dict[str, Callable[[Sequence[str]], None]] = {
    "kafkaclient": _check_kafkaclient,
    "make": _check_make,
    "pip": _check_pip,
    "psql": _check_psql,
}
