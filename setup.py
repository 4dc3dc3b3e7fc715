"""The optional compiled part; everything else about the build is in pyproject.toml.

Without a C compiler the extensions are skipped and the pure-Python twins are used.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

EXTENSIONS = [
    Extension(f"kafkaclient.wire.{name}", [f"kafkaclient/wire/{name}.pyx"], optional=True)
    for name in ("_records", "_murmur2")
]

setup(ext_modules=cythonize(EXTENSIONS, language_level=3))
