"""``perf-test --flame-graph``: a flame graph of the load's process, by pyinstrument."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING

from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_INTERVAL_S = 0.001  # between two samples


@contextmanager
def profiled(path: Path | None) -> Iterator[None]:
    """Sample the stack of this thread, and write a page, or for ``.json`` speedscope's file.

    Without a path nothing is done. Raises ConfigError if pyinstrument is not installed.
    """
    if path is None:
        yield
        return
    try:
        profiler = import_module("pyinstrument").Profiler(
            interval=_INTERVAL_S,
            async_mode="disabled",  # callbacks of the event loop belong to no task
        )
        renderers = import_module("pyinstrument.renderers")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "--flame-graph needs pyinstrument: pip install 'kafkaclient[profile]'"
        ) from error
    renderer = renderers.HTMLRenderer()
    if path.suffix == ".json":
        renderer = renderers.SpeedscopeRenderer()
    path.parent.mkdir(parents=True, exist_ok=True)
    with profiler:
        yield
    path.write_text(profiler.output(renderer), encoding="utf-8")
