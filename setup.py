"""The optional compiled part; everything else about the build is in pyproject.toml.

Without Cython or a C compiler the extensions are left out, and the pure-Python forms are used.
"""

from setuptools import Extension, setup

# The compiled form of x is _x, made of x.py with the C types in _x.pxd, or of _x.pyx.
SOURCES = [
    "kafkaclient/metrics/stats.py",
    "kafkaclient/perf/slices.py",
    "kafkaclient/producer/bulk/_rows.pyx",
    "kafkaclient/producer/bulk/_arrow_rows.pyx",
    "kafkaclient/producer/batches/delivery.py",
    "kafkaclient/producer/batches/direct_append.py",
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


try:
    from Cython.Build import cythonize
except ModuleNotFoundError:
    extensions = []
else:
    extensions = cythonize(
        [Extension(_module(source), [source]) for source in SOURCES],
        force=True,  # it does not see that a .pxd file has changed where the names differ
        # Python's annotations are for people and mypy; C types are in the .pxd files.
        compiler_directives={"language_level": 3, "annotation_typing": False},
    )
    for extension in extensions:
        extension.optional = True  # cythonize() drops the mark from what it is given

setup(ext_modules=extensions)
