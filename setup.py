"""The optional compiled part; everything else about the build is in pyproject.toml.

Without Cython or a C compiler the extensions are left out and their pure-Python twins are used.
"""

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ModuleNotFoundError:
    EXTENSIONS = []
else:
    EXTENSIONS = cythonize(
        [
            Extension(f"kafkaclient.wire.{name}", [f"kafkaclient/wire/{name}.pyx"], optional=True)
            for name in ("_records", "_murmur2")
        ],
        language_level=3,
    )

setup(ext_modules=EXTENSIONS)
