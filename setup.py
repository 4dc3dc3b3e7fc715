"""The compiled modules and PyPI's page; everything else about the build is in pyproject.toml."""

import os
import sys
from pathlib import Path
from runpy import run_path
from shutil import rmtree

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError, PlatformError

TOOLS = run_path("release/extensions.py")
ROOT = Path(TOOLS["ROOT"])
SOURCES = TOOLS["sources"]()
SHARED = TOOLS["SHARED"]
# Two thirds of the time of -O2, for 1 to 2 % more instructions a record.
OPTIMIZE = ["-O1", "-finline-small-functions"]
# Debug information would be nine tenths of a wheel. CFLAGS=-g keeps it (`make sanitize`).
WITH_SYMBOLS = "-g" in os.environ.get("CFLAGS", "").split()
STRIP = {"linux": ["-Wl,-s"], "darwin": ["-Wl,-x"]}.get(sys.platform, [])
# The commands that only describe the project, several for each wheel, need no extensions.
DESCRIBES = {"egg_info", "dist_info", "sdist"}.intersection(sys.argv)
# KAFKACLIENT_COMPILE=0: for tests of what is in a wheel, which does not work then.
COMPILE = os.environ.get("KAFKACLIENT_COMPILE", "1") not in ("", "0") and not DESCRIBES


class BuildExtensions(build_ext):
    def finalize_options(self):
        super().finalize_options()
        # An editable install forgets what setup(options=...) says.
        self.parallel = self.parallel or os.cpu_count()

    def run(self):
        try:
            super().run()
        except (CompileError, PlatformError) as error:
            sys.exit(
                f"kafkaclient needs a C compiler, which failed: {error}. Or install a wheel that "
                "was built for this Python and system: docs/get-started/install.md"
            )


def extensions() -> list[Extension]:
    files = {name: str(source.relative_to(ROOT)) for name, source in SOURCES.items()}
    files[SHARED] = f"{SHARED.replace('.', '/')}.c"
    found = cythonize(
        [Extension(name, [file], extra_compile_args=[*OPTIMIZE]) for name, file in files.items()],
        shared_utility_qualified_name=SHARED,
        nthreads=os.cpu_count() or 1,
        quiet=True,
        # Python's annotations are for people and mypy; C types are in the .pxd files.
        compiler_directives={
            "language_level": 3,
            "annotation_typing": False,
            "nonecheck": True,
            "auto_pickle": False,
            "profile": os.environ.get("KAFKACLIENT_PROFILE", "0") not in ("", "0"),
        },
    )
    types = TOOLS["c_types"]()
    for extension in found:
        if extension.name != SHARED:
            TOOLS["mark"](ROOT / extension.sources[0], SOURCES[extension.name], types)
        if not WITH_SYMBOLS and os.name == "posix":
            extension.extra_compile_args.append("-g0")
            extension.extra_link_args += STRIP
    return found


# A wheel takes everything in build/lib*, also modules that have moved or are not compiled any more.
for lib in Path("build").glob("lib*") if "bdist_wheel" in sys.argv else ():
    rmtree(lib)
# Python prefers a compiled form to the source, also one that an earlier version has left behind.
for left in Path("kafkaclient").rglob("*.so") if COMPILE else ():
    if ".".join([*left.parent.parts, left.name.partition(".")[0]]) not in {*SOURCES, SHARED}:
        left.unlink()

# A build of the extensions alone also works in a tree without README.md.
PAGE = "" if "build_ext" in sys.argv else run_path("release/readme.py")["for_pypi"]()

setup(
    long_description=PAGE,
    long_description_content_type="text/markdown",
    ext_modules=extensions() if COMPILE else [],
    cmdclass={"build_ext": BuildExtensions},
)
