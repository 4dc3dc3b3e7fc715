"""The optional compiled part; everything else about the build is in pyproject.toml.

Without Cython, mypyc (a part of mypy) or a C compiler, the extensions that need it are left out,
and the pure-Python forms are used.
"""

import os
import sys
from pathlib import Path
from runpy import run_path
from shutil import rmtree

from setuptools import Extension, setup

# The compiled form of x is _x, made of x.py with the C types in _x.pxd, or of _x.pyx.
SOURCES = [
    "kafkaclient/aiokafka/futures.py",
    "kafkaclient/metrics/stats.py",
    "kafkaclient/opentelemetry/pending_spans.py",
    "kafkaclient/opentelemetry/sending.py",
    "kafkaclient/perf/slices.py",
    "kafkaclient/producer/bulk/_rows.pyx",
    "kafkaclient/producer/bulk/_arrow_rows.pyx",
    "kafkaclient/producer/batches/batch_result.py",
    "kafkaclient/producer/batches/delivery.py",
    "kafkaclient/producer/batches/delivery_future.py",
    "kafkaclient/producer/batches/direct_append.py",
    "kafkaclient/producer/batches/serializers.py",
    "kafkaclient/producer/batches/waiters.py",
    "kafkaclient/wire/murmur2.py",
    "kafkaclient/wire/produce.py",
    "kafkaclient/wire/reader.py",
    "kafkaclient/wire/_record_buffer.pyx",
    "kafkaclient/wire/_record_columns.pyx",
    "kafkaclient/wire/records.py",
]


def _module(source: str) -> str:
    package, _, name = source.rpartition(".")[0].rpartition("/")
    return f"{package.replace('/', '.')}._{name.removeprefix('_')}"


def _cython_extensions() -> list[Extension]:
    try:
        from Cython.Build import cythonize  # noqa: PLC0415 - it may be missing
    except ModuleNotFoundError:
        return []
    return cythonize(
        [Extension(_module(source), [source]) for source in SOURCES],
        force=True,  # it does not see that a .pxd file has changed where the names differ
        # Python's annotations are for people and mypy; C types are in the .pxd files.
        compiler_directives={"language_level": 3, "annotation_typing": False},
    )


def _mypyc_extensions() -> list[Extension]:
    if os.environ.get("KAFKACLIENT_MYPYC") == "0":  # it is the longest part of a build: a minute
        return []
    try:
        from mypyc.build import mypycify  # noqa: PLC0415 - it may be missing
    except ModuleNotFoundError:
        return []
    modules = run_path("kafkaclient/compiled_modules.py")["NATIVE"]
    sources = [f"{module.replace('.', '/')}.py" for module in modules]
    # Not the strict settings of `make check`: a build lacks most of the libraries that they need.
    mypy = ["--config-file=", "--ignore-missing-imports"]
    try:
        # One library for all: a call from one module to another is a call in C. Higher levels of
        # optimization were not faster, and take longer to build.
        return mypycify([*mypy, *sources], opt_level="1", group_name="kafkaclient._native")
    except SystemExit:  # a version of mypy that does not accept the sources, and has said why
        sys.stderr.write("mypyc could not compile the sources: they stay interpreted\n")
        return []


# Debug information would be nine tenths of a wheel. CFLAGS=-g keeps it (`make sanitize`).
STRIP = {"linux": ["-Wl,-s"], "darwin": ["-Wl,-x"]}.get(sys.platform, [])
WITH_SYMBOLS = "-g" in os.environ.get("CFLAGS", "").split()
# A wheel of a release must be compiled: there a failure ends the build.
REQUIRED = os.environ.get("KAFKACLIENT_REQUIRE_COMPILED", "0") not in ("", "0")

# KAFKACLIENT_COMPILE=0: for tests of what is in a wheel; it takes seconds instead of minutes. The
# commands that only describe the project, several for each wheel, need no extensions.
DESCRIBES = {"egg_info", "dist_info", "sdist"}.intersection(sys.argv)
COMPILE = os.environ.get("KAFKACLIENT_COMPILE", "1") not in ("", "0") and not DESCRIBES

cython, mypyc = (_cython_extensions(), _mypyc_extensions()) if COMPILE else ([], [])
if COMPILE and REQUIRED and not (cython and mypyc):
    sys.exit("KAFKACLIENT_REQUIRE_COMPILED is set, but Cython or mypyc is missing or has failed")
extensions = cython + mypyc
# A wheel takes everything in build/lib*, also modules that have moved or are not compiled any more.
for lib in Path("build").glob("lib*") if "bdist_wheel" in sys.argv else ():
    rmtree(lib)
# Python prefers a compiled form to the source, also one that an earlier version has left behind.
built = {extension.name for extension in extensions}
for left in Path("kafkaclient").rglob("*.so") if mypyc else ():
    module = ".".join([*left.parent.parts, left.name.partition(".")[0]])
    if module not in built:
        left.unlink()
for extension in extensions:
    extension.optional = not REQUIRED  # cythonize() drops the mark from what it is given
    if not WITH_SYMBOLS and os.name == "posix":
        extension.extra_compile_args = [*extension.extra_compile_args, "-g0"]
        extension.extra_link_args = [*extension.extra_link_args, *STRIP]

setup(ext_modules=extensions)
