"""Writes the table of extras in docs/reference/extras.md: what each brings, and how many MB.

``python -m release.extras PAGE`` installs each extra into an environment of its own, with the
versions of constraints.txt. The table stands between two comments of the page.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- extras: make extras -->\n", "<!-- end of extras -->\n"
SHOWN = 4

WHAT_FOR = {
    "": "producer, consumer (also sync), reader, admin client, fake cluster; all codecs",
    "uvloop": "a faster event loop for the command line and Spark",
    "properties": "`FileLimits`: partition limits in a `.properties` file",
    "cli": "the command `kafkaclient`",
    "report": "`kafkaclient report`: telemetry, through Spark, into a page",
    "profile": "`kafkaclient perf-test --flame-graph`",
    "aiokafka": "the drop-ins for aiokafka's clients",
    "opentelemetry": "spans and metrics; the service brings its SDK",
    "prometheus": "pages of producers and consumers",
    "schema-registry": "serializers for Avro, JSON Schema and Protobuf",
    "aws": "logins of Amazon MSK",
    "azure": "logins of Azure Event Hubs",
    "pkcs12": "key stores and trust stores in PKCS12",
    "gssapi": "Kerberos; built with the system's headers (`libkrb5-dev`)",
    "arrow": "`send_arrow`; the reader's batches need no extra",
    "telemetry": "the option `telemetry`: a row for each batch, in Parquet files",
    "spark": "the data source for PySpark, with a Java",
    "streams": "`StreamsApp`: consumers and a store on disk",
    "testing": "real brokers for tests, with a Java",
    "demo": "`python -m experiments`, in a clone of the repository",
    "bench": "`make bench`, in a clone of the repository",
}
"""Every extra but ``all``, and the core."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("--uv", default=shutil.which("uv") or "uv")
    parser.add_argument("--python", default="3.11")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = ["", *(name for name in project["optional-dependencies"] if name != "all")]
    rows = [_row(options.uv, options.python, extra) for extra in extras]
    head = "| extra | what for | packages | MB | largest, MB |\n| --- | --- | --- | --- | --- |\n"
    before, _, rest = options.page.read_text("utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    options.page.write_text(f"{before}{BEGIN}\n{head}{''.join(rows)}\n{END}{after}", "utf-8")


def _row(uv: str, python: str, extra: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        venv = Path(folder)
        subprocess.run([uv, "venv", "--quiet", "--python", python, venv], check=True)
        wanted: list[str] = ["--extra", extra] if extra else []
        pinned = _pinned(uv, wanted)
        into = ["--python", str(venv / "bin" / "python")]
        subprocess.run(
            [uv, "pip", "install", "--quiet", *into, "-r", "-"], input=pinned, text=True, check=True
        )
        sizes = _sizes(next(venv.glob("lib/python*/site-packages")))
    largest = sorted(sizes, key=lambda name: -sizes[name])[:SHOWN]
    listed = ", ".join(f"{name} {sizes[name]:.1f}" for name in largest)
    name = f"`{extra}`" if extra else "none (the core)"
    total = sum(sizes.values())
    return f"| {name} | {WHAT_FOR[extra]} | {len(sizes)} | {total:.1f} | {listed} |\n"


def _pinned(uv: str, wanted: list[str]) -> str:
    compiled = subprocess.run(
        [
            *(uv, "pip", "compile", "--quiet", "--no-header", "--no-annotate", *wanted),
            *("--no-emit-index-url", "--no-emit-find-links"),
            *("--constraints", ROOT / "constraints.txt", ROOT / "pyproject.toml"),
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    return re.sub(r" *(\\\n)? *--hash=\S+", "", compiled.stdout)


def _sizes(site_packages: Path) -> dict[str, float]:
    """MB of each package's files."""
    sizes = {}
    for metadata in site_packages.glob("*.dist-info"):
        name = metadata.name.partition("-")[0].replace("_", "-").lower()
        lines = (metadata / "RECORD").read_text("utf-8").splitlines()
        files = (site_packages / line.rsplit(",", 2)[0].strip('"') for line in lines)
        sizes[name] = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
    return sizes


if __name__ == "__main__":
    main()
