"""The optional compiled part; everything else about the build is in pyproject.toml.

Without Cython, mypyc (a part of mypy) or a C compiler, the extensions that need it are left out,
and the pure-Python forms are used.
"""

import os
import sys
from runpy import run_path

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


extensions = _cython_extensions() + _mypyc_extensions()
for extension in extensions:
    extension.optional = True  # cythonize() drops the mark from what it is given

setup(ext_modules=extensions)
