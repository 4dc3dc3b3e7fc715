"""The optional compiled part; everything else about the build is in pyproject.toml.

Without Cython or a C compiler the extensions are left out, and pure Python does their work: a twin
of the same names, or the very source that is compiled here.
"""

from setuptools import Extension, setup

SOURCES = {
    "kafkaclient.metrics._stats": "kafkaclient/metrics/_stats_py.py",
    "kafkaclient.producer._bulk": "kafkaclient/producer/_bulk.pyx",
    "kafkaclient.producer._columns": "kafkaclient/producer/_columns.pyx",
    "kafkaclient.producer._delivery": "kafkaclient/producer/_delivery.pyx",
    "kafkaclient.producer._fastpath": "kafkaclient/producer/_fastpath.pyx",
    "kafkaclient.wire._murmur2": "kafkaclient/wire/_murmur2.pyx",
    "kafkaclient.wire._produce": "kafkaclient/wire/_produce_py.py",
    "kafkaclient.wire._reader": "kafkaclient/wire/_reader_py.py",
    "kafkaclient.wire._record_columns": "kafkaclient/wire/_record_columns.pyx",
    "kafkaclient.wire._records": "kafkaclient/wire/_records.pyx",
}

try:
    from Cython.Build import cythonize
except ModuleNotFoundError:
    extensions = []
else:
    extensions = cythonize(
        [Extension(name, [source]) for name, source in SOURCES.items()],
        force=True,  # it does not see that a .pxd file has changed where the names differ
        # Python's annotations are for people and mypy; C types are in the .pxd files.
        compiler_directives={"language_level": 3, "annotation_typing": False},
    )
    for extension in extensions:
        extension.optional = True  # cythonize() drops the mark from what it is given

setup(ext_modules=extensions)
