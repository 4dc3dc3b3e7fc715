"""The optional compiled part; everything else about the build is in pyproject.toml.

Without Cython or a C compiler the extensions are left out and their pure-Python twins are used.
"""

from setuptools import setup

COMPILED = [
    "kafkaclient/wire/_records.pyx",
    "kafkaclient/wire/_murmur2.pyx",
    "kafkaclient/producer/_delivery.pyx",
    "kafkaclient/producer/_fastpath.pyx",
]

try:
    from Cython.Build import cythonize
except ModuleNotFoundError:
    extensions = []
else:
    extensions = cythonize(COMPILED)
    for extension in extensions:
        extension.optional = True  # cythonize() drops the mark from what it is given

setup(ext_modules=extensions)
