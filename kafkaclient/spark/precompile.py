"""``python -m kafkaclient.spark.precompile``: Spark's Python processes start faster.

They import PySpark from ``$SPARK_HOME/python/lib/*.zip``. The zips have no compiled modules, and
Python writes none into a zip: each process compiles whatever it imports. This program adds the
compiled modules. Run it once per installation (per worker image) with the Python of Spark's
workers, and again after an update of Spark or Python. Another Python ignores the compiled modules.
"""

from __future__ import annotations

import argparse
import marshal
import os
import sys
import warnings
from importlib.util import MAGIC_NUMBER, find_spec, source_hash
from pathlib import Path
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

_UNCHECKED = (1).to_bytes(4, "little")  # PEP 552: the zip's source is not compared with it


def add_compiled_modules(path: Path) -> int:
    """Compile the modules of a zip for this Python; the zip is replaced when it is complete.

    Returns their number. Modules that do not compile stay as they are.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    added = 0
    try:
        with ZipFile(path) as old, ZipFile(unfinished, "w", ZIP_DEFLATED) as new:
            for each in old.infolist():
                if each.filename.endswith(".pyc"):  # of an earlier run
                    continue
                content = old.read(each)
                new.writestr(each, content)
                if each.filename.endswith(".py") and (code := _compiled(content, each.filename)):
                    new.writestr(f"{each.filename}c", code)
                    added += 1
        unfinished.chmod(path.stat().st_mode)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return added


def _compiled(source: bytes, name: str) -> bytes | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return MAGIC_NUMBER + _UNCHECKED + source_hash(source) + marshal.dumps(code)


def _spark_home() -> Path | None:
    """As Spark finds it: ``SPARK_HOME``, or the installed PySpark."""
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def main() -> int:
    argparse.ArgumentParser(
        "python -m kafkaclient.spark.precompile", description=__doc__
    ).parse_args()
    home = _spark_home()
    zips = sorted(home.glob("python/lib/*.zip")) if home is not None else []
    if not zips:
        sys.stderr.write(f"no zips in {home}/python/lib: set SPARK_HOME or install pyspark\n")
        return 2
    for path in zips:
        try:
            added = add_compiled_modules(path)
        except (OSError, BadZipFile) as error:
            sys.stderr.write(f"{path} is unchanged: {error}\n")
            return 1
        version = ".".join(map(str, sys.version_info[:2]))
        sys.stdout.write(f"{path}: {added:,} modules compiled for Python {version}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
