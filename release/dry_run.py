"""``make release-check``: builds what a release of a commit uploads, checks it, and tries it.

The files are built from those of the commit alone, and stay in ``build/release/dist``. Nothing is
uploaded. A tag must be ready for a release; for another commit, what is missing is only listed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from release import extensions, readme
from release.file_lists import contents, metadata, sdist_problems, size, wheel_problems
from release.wheel_test import build_sdist, build_wheel, markdown, try_alone

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
NOT_RELEASED = "There is no release on PyPI yet."
FROM_A_CLONE = "In a clone of this repository, with a C compiler:"
# What a page says until the first release.
_UNTIL_RELEASED = {"docs/get-started/install.md": NOT_RELEASED, "README.md": FROM_A_CLONE}
# With PYTHONPATH a source tree would be tried, not the wheel. The others change the compilation.
_CHANGES_WHEELS = ("PYTHONPATH", "CFLAGS", "KAFKACLIENT_PROFILE", "KAFKACLIENT_COMPILE")
# As PyPI checks the metadata of an upload.
METADATA = """
import sys
from packaging.metadata import Metadata
from trove_classifiers import classifiers
metadata = Metadata.from_email(sys.stdin.buffer.read(), validate=True)
sys.exit(", ".join(sorted(set(metadata.classifiers) - set(classifiers))) or 0)
"""


@dataclass
class Report:
    """The rows of the table, and what failed."""

    rows: list[tuple[str, str]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def add(self, check: str, problems: list[str], passed: str) -> None:
        """A row of the table."""
        self.rows.append((check, "failed" if problems else passed))
        self.failed += [f"{check}: {problem}" for problem in problems]

    def run(self, check: str, command: Sequence[str | Path], stdin: str = "") -> None:
        """A row for a command, whose output says what is wrong."""
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False,
            env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        said = (done.stdout + done.stderr).strip()
        self.add(check, [said or f"exit {done.returncode}"] if done.returncode else [], "passed")


def main() -> int:
    """Exit status 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD", help="a tag or a commit")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--uv", default=shutil.which("uv") or "uv")
    parser.add_argument("--tools", type=Path, required=True, help="programs of release/tools.txt")
    options = parser.parse_args()
    for name in _CHANGES_WHEELS:
        os.environ.pop(name, None)
    out, uv, commit = options.out.resolve(), str(Path(options.uv).resolve()), options.commit
    tools, python, report = options.tools.resolve(), Path(sys.executable), Report()
    tree, short = export(commit, out)
    version = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    named = ["git", "rev-parse", "--verify", "--quiet", f"refs/tags/{commit}"]
    is_tag = subprocess.run(named, cwd=ROOT, capture_output=True, check=False).returncode == 0
    missing = before_release(tree, commit if is_tag else f"v{version}")
    if is_tag:
        report.add(commit, missing, "version, changelog, install page, links of README.md")
    if report.failed:  # before a build of minutes
        sys.stdout.write(next_step(report.failed, missing, commit, is_tag=True))
        return 1
    sys.stderr.write(f"Building from {commit} ({short}), which takes some minutes\n")

    files = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
    modules = [*extensions.sources(tree), extensions.SHARED]
    sdist = build_sdist(uv, out / "dist", tree)
    wheel = build_wheel(uv, python, sdist, out / "dist")
    plain = build_wheel(uv, python, tree, out / "plain", KAFKACLIENT_COMPILE="0")
    problems = sdist_problems(files, contents(sdist))
    report.add("sdist", problems, f"{size(sdist)}: those of the commit")
    problems = wheel_problems(contents(plain), contents(wheel), modules)
    report.add("wheel", problems, f"{size(wheel)}: those of the tree, {len(modules)} compiled")
    report.run("twine check --strict", [tools / "twine", "check", "--strict", sdist, wheel])
    contents_check = [tools / "check-wheel-contents", "--config", tree / "pyproject.toml", wheel]
    report.run("check-wheel-contents", contents_check)
    report.run("PyPI's rules for metadata", [tools / "python", "-c", METADATA], metadata(wheel))
    core, said, problems = try_alone(uv, python, wheel, tree, out / "alone")
    report.add("wheel, installed alone", problems, f"brings {len(core)} packages; {said}")
    sys.stdout.write(f"\nkafkaclient {version} of {commit} ({short}), in {out / 'dist'}\n\n")
    sys.stdout.write(markdown(("check", "result"), report.rows))
    sys.stdout.write(next_step(report.failed, missing, f"v{version}", is_tag=is_tag))
    return int(bool(report.failed))


def export(commit: str, out: Path) -> tuple[Path, str]:
    """The files of a commit in an empty folder, and the commit's short name."""
    tree = out / "tree"
    for folder in tree, out / "dist", out / "plain", out / "alone":
        shutil.rmtree(folder, ignore_errors=True)
    tree.mkdir(parents=True)
    archive = out / "tree.tar"
    subprocess.run(["git", "archive", f"--output={archive}", commit], cwd=ROOT, check=True)
    with tarfile.open(archive) as content:
        content.extractall(tree, filter="data")
    archive.unlink()
    named = ["git", "rev-parse", "--short", f"{commit}^{{commit}}"]
    done = subprocess.run(named, cwd=ROOT, check=True, capture_output=True, text=True)
    return tree, done.stdout.strip()


def before_release(tree: Path, tag: str) -> list[str]:
    """What a tree lacks for the release with this tag."""
    project = tomllib.loads((tree / "pyproject.toml").read_text("utf-8"))["project"]
    missing = []
    if f"v{project['version']}" != tag:
        missing.append(f"pyproject.toml has version {project['version']}, not that of {tag}")
    heading = rf"^## {re.escape(tag.removeprefix('v'))} - \d{{4}}-\d\d-\d\d$"
    if not re.search(heading, (tree / "docs/project/changelog.md").read_text("utf-8"), re.M):
        missing.append(f"changelog.md has no heading '## {tag.removeprefix('v')} - YYYY-MM-DD'")
    missing += [
        f"{Path(page).name} says: {sentence}"
        for page, sentence in _UNTIL_RELEASED.items()
        if sentence in (tree / page).read_text("utf-8")
    ]
    if dead := readme.relative_links(readme.for_pypi(tree)):
        missing.append(
            f"{len(dead)} links of README.md are dead on PyPI: set project.urls.Repository"
        )
    return missing


def next_step(failed: list[str], missing: list[str], tag: str, *, is_tag: bool) -> str:
    """What a person does next."""
    if failed:
        lines = ["", "Failed:", *(f"- {line}" for line in failed)]
    elif is_tag:
        lines = ["", f"Nothing was uploaded. Next: git push origin {tag}"]
    else:
        lines = ["", f"Nothing was uploaded. Before {tag}:", *(f"- {line}" for line in missing)]
        lines.append(f"- tag {tag}, and make release-check TAG={tag}")
    return "\n".join([*lines, "docs/project/releasing.md has all steps.", ""])


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:  # the command has said why
        sys.exit(f"{' '.join(map(str, error.cmd))}: exit {error.returncode}")
