"""The fenced code blocks of README.md, CONTRIBUTING.md, SECURITY.md and docs, and their tests.

A test that runs blocks is decorated with :func:`runs`, one that only reads them with
:func:`parses`; both fail if the test has not done it. A block that no test can run has the reason
above itself: ``<!-- not run: REASON -->``. tests/test_code_blocks.py compares the blocks with the
decorators of all tests.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import inspect
import re
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkaclient
import kafkaclient.admin
import kafkaclient.reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).parents[1]
_FENCE = re.compile(
    r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[\w-]*)(?: title=\"(?P<title>[^\"]+)\")?\n"
    r"(?P<code>.*?)^(?P=indent)(?P=fence) *$",
    re.DOTALL | re.MULTILINE,
)
_REASON = re.compile(r"<!-- not run: ([^\n]+) -->\s*\Z")
_CLIENTS = {
    kafkaclient: ("Consumer", "Producer", "SyncConsumer", "SyncProducer"),
    kafkaclient.reader: ("Reader",),
    kafkaclient.admin: ("Admin",),
}
_used: set[Block] = set()


@dataclass(frozen=True)
class Command:
    """A command of a console block, and the lines that the page shows below it."""

    line: str
    output: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """A fenced block. ``title`` is the name of the file that a reader pastes the block into,
    ``reason`` says why no test runs it; both may be empty."""

    page: str
    line: int
    language: str
    title: str
    reason: str
    source: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def text(self, replaced: Mapping[str, str] | None = None) -> str:
        """The code for a test to use, with each key of ``replaced`` replaced by its value."""
        _used.add(self)
        return replace_all(self.source, replaced or {})

    def run(
        self,
        names: Mapping[str, Any] | None = None,
        *,
        dialer: Any = None,
        replaced: Mapping[str, str] | None = None,
        within: str = "",
    ) -> dict[str, Any]:
        """Execute Python code, which may await outside of a function, and return its names.

        The code has the classes of clients, and also ``names``. With ``dialer``, a FakeCluster, its
        clients are connected to that. ``within`` is a line such as ``async with ...:``, whose body
        the code becomes.
        """
        bootstrap = {} if dialer is None else {"localhost:9092": dialer.bootstrap}
        code = self.text(replaced)
        if within:
            code = f"{within}\n{textwrap.indent(code, '    ')}"
        code = replace_all(code, bootstrap)
        with _clients(dialer) as clients:
            found = {**clients, **(names or {})}
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            running = eval(compile("\n" * self.line + code, self.page, "exec", flags), found)  # noqa: S307
            if inspect.iscoroutine(running):
                asyncio.run(running)
        return found

    @property
    def commands(self) -> list[Command]:
        """The commands of a console block: the lines after ``$``; the others are output."""
        parts = re.split(r"^\$ ", self.text(), flags=re.MULTILINE)[1:]
        lines = [part.replace("\\\n", "").rstrip("\n").split("\n") for part in parts]
        return [Command(first, tuple(output)) for first, *output in lines]

    def write(self, directory: Path, replaced: Mapping[str, str] | None = None) -> None:
        """Write the block's file."""
        (directory / self.title).write_text(self.text(replaced), "utf-8")


def replace_all(text: str, replaced: Mapping[str, str]) -> str:
    """The text with each key of ``replaced`` replaced by its value."""
    for old, new in replaced.items():
        text = text.replace(old, new)
    return text


@contextmanager
def _clients(dialer: Any) -> Iterator[dict[str, Any]]:
    """The client classes by name; meanwhile an import finds them connected to ``dialer``."""
    clients: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        for module, classes in _CLIENTS.items():
            for name in classes:
                clients[name] = getattr(module, name)
                if dialer is not None:
                    clients[name] = functools.partial(clients[name], dialer=dialer)
                    patch.setattr(module, name, clients[name], raising=False)
        yield clients


def _blocks_of(path: Path) -> Iterator[Block]:
    text = path.read_text("utf-8")
    end = 0
    for found in _FENCE.finditer(text):
        before = text[end : found.start()]
        reason = _REASON.search(before)
        yield Block(
            str(path.relative_to(ROOT)),
            text.count("\n", 0, found.start()) + 1,
            found["language"],
            found["title"] or "",
            reason[1] if reason else "",
            textwrap.dedent(found["code"]),
        )
        end = found.end()


PAGES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
)
BLOCKS = tuple(block for page in PAGES for block in _blocks_of(page))


def select(page: str, language: str, *, having: str = "", without: str = "\0") -> list[Block]:
    """The blocks of a language on a page, or on all pages that a pattern with ``*`` matches, that
    contain ``having``, and do not contain ``without``."""
    return [
        block
        for block in BLOCKS
        if fnmatch(block.page, page)
        and block.language == language
        and having in f"{block.title}\n{block.source}"
        and without not in f"{block.title}\n{block.source}"
    ]


def runs(
    page: str,
    language: str = "python",
    *,
    having: str = "",
    without: str = "\0",
    name: str = "block",
    together: bool = False,
    slow: Callable[[Block], bool] = lambda _: False,
) -> Callable[[Any], Any]:
    """Give a test the blocks of :func:`select`, one a call, as the argument ``name``.

    With ``together``, the test is called once, with a list. A call for a ``slow`` block is left to
    `make integration`. The test fails unless it has used each block that it was given.
    """
    blocks = select(page, language, having=having, without=without)
    assert blocks, f"{page} has no such block of {language}"
    given: list[Any] = [blocks] if together else blocks
    cases = [
        pytest.param(
            each,
            id=page if together else str(each),
            marks=[pytest.mark.full] if not together and slow(each) else [],
        )
        for each in given
    ]

    def decorate(test: Any) -> Any:
        @contextmanager
        def checked(arguments: dict[str, Any]) -> Iterator[None]:
            claimed = arguments[name] if together else [arguments[name]]
            _used.difference_update(claimed)
            yield
            left = ", ".join(str(block) for block in claimed if block not in _used)
            assert not left, f"{test.__name__} claims {left}, and has not used it"

        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def wrapped(**arguments: Any) -> None:
                with checked(arguments):
                    await test(**arguments)
        else:

            @functools.wraps(test)
            def wrapped(**arguments: Any) -> None:
                with checked(arguments):
                    test(**arguments)

        return pytest.mark.parametrize(name, cases)(wrapped)

    return decorate


parses = runs
"""For a test that checks blocks without running them."""


@dataclass(frozen=True)
class Claim:
    """A decorator of a test. ``runs`` says whether `make test` has all of its calls."""

    test: str
    runs: bool
    blocks: frozenset[Block]


def claims() -> Iterator[Claim]:
    """The claims of all tests, without importing them."""
    for folder in ("tests", "integration"):
        for path in sorted((ROOT / folder).rglob("test_*.py")):
            text = path.read_text("utf-8")
            if "code_blocks import" not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if not node.name.startswith("test_"):
                    continue
                for call in node.decorator_list:
                    if (
                        isinstance(call, ast.Call)
                        and isinstance(call.func, ast.Name)
                        and call.func.id in ("runs", "parses")
                    ):
                        arguments = [ast.literal_eval(argument) for argument in call.args]
                        options = {
                            option.arg: ast.literal_eval(option.value)
                            for option in call.keywords
                            if option.arg in ("having", "without")
                        }
                        named = {option.arg for option in call.keywords}
                        page, language = [*arguments, "python"][:2]
                        yield Claim(
                            f"{path.relative_to(ROOT)}::{node.name}",
                            call.func.id == "runs" and "slow" not in named,
                            frozenset(select(page, language, **options)),
                        )
