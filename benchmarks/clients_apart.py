"""A benchmark on real brokers whose clients run one after the other, each in its own process."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from rich.table import Table


class ClientsApart(NamedTuple):
    """``main()`` is both the benchmark and, with ``--work``, the process of one client."""

    module: str
    doc: str | None
    clients: Sequence[str]
    numbers: Mapping[str, tuple[float, str]]
    """The options that are numbers: the default, whose type is the option's, and the help text."""
    work: Callable[[argparse.Namespace], dict[str, Any]]
    """In the client's process: the figures of ``wanted.work`` at ``wanted.bootstrap``."""
    measure: Callable[[argparse.Namespace], Coroutine[Any, Any, dict[str, Any]]]
    table: Callable[[dict[str, Any]], Table]

    def main(self) -> None:
        wanted = self._parser().parse_args()
        if wanted.work:
            print(json.dumps(self.work(wanted)), flush=True)
            return
        found = asyncio.run(self.measure(wanted))
        Console().print(self.table(found))
        if wanted.out is not None:
            wanted.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")

    async def figures(
        self, client: str, bootstrap: str, topic: str, wanted: argparse.Namespace
    ) -> dict[str, Any]:
        """Run a client in its process."""
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self.module, "--work", client),
            *("--bootstrap", bootstrap, "--topic", topic),
            *(f"--{name}={value}" for name, value in self.options(wanted).items()),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            printed, _ = await child.communicate()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        if child.returncode:
            raise RuntimeError(f"the run of {client} failed with exit code {child.returncode}")
        found: dict[str, Any] = json.loads(printed.decode().splitlines()[-1])
        return found

    def options(self, wanted: argparse.Namespace) -> dict[str, float]:
        return {name: getattr(wanted, name) for name in self.numbers}

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            description=self.doc, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        for name, (default, text) in self.numbers.items():
            parser.add_argument(f"--{name}", type=type(default), default=default, help=text)
        parser.add_argument("--clients", default=",".join(self.clients))
        parser.add_argument("--out", type=Path, help="keep all figures here, as JSON")
        parser.add_argument("--work", choices=self.clients, help=argparse.SUPPRESS)
        parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
        parser.add_argument("--topic", help=argparse.SUPPRESS)
        return parser
