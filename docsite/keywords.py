"""The types of the clients' keyword arguments, from the declarations of their options: ``python -m
docsite.keywords`` writes ``kafkaclient/config/keywords.py``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.config.producer import ProducerConfig
from kafkaclient.config.reader import AdminConfig, ReaderConfig

if TYPE_CHECKING:
    from kafkaclient.config.options import Options

MODULE = Path(__file__).parents[1] / "kafkaclient" / "config" / "keywords.py"

_HEAD = '''\
"""The types of the clients' keyword arguments, which type checkers and editors know.

Made from the declarations of the options by ``make keywords``. Only type checkers import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from os import PathLike

    from kafkaclient.consumer.deserializers import Deserializer
    from kafkaclient.hooks import Hooks
    from kafkaclient.net.tokens import Token, TokenProvider
    from kafkaclient.producer.batches.serializers import Serializer
    from kafkaclient.producer.partitioning.partitioners import Partitioner
'''
_CLASSES: dict[str, tuple[str, type[Options]]] = {
    "ProducerKeywords": ("`Producer` and `SyncProducer`", ProducerConfig),
    "ReaderKeywords": ("`Reader`", ReaderConfig),
    "ConsumerKeywords": ("`Consumer` and `SyncConsumer`", ConsumerConfig),
    "AdminKeywords": ("`Admin`", AdminConfig),
}


def text() -> str:
    """The module's text, formatted."""
    parts = [_HEAD]
    for name, (clients, config) in _CLASSES.items():
        parts.append(f"\n\nclass {name}(TypedDict, total=False):\n")
        parts.append(f'    """The options of {clients.replace("`", "``")}."""\n\n')
        for option in config.OPTIONS.values():
            names = [option.name, *(alias.replace(".", "_") for alias in option.aliases)]
            parts += [f"    {each}: {option.kind.annotation}\n" for each in names]
    ruff = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(MODULE), "-"]
    done = subprocess.run(  # noqa: S603 - our own words
        ruff, input="".join(parts), capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    MODULE.write_text(text(), "utf-8")
