"""Runs an experiment: ``python -m experiments --help``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from experiments.app import app  # noqa: PLC0415 - its libraries may be missing
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library in ("experiments", "kafkaclient"):
            raise
        sys.exit(
            f"the experiments need {library}, which is not installed: "
            "pip install 'kafkaclient[demo]'"
        )
    app(prog_name="python -m experiments")


if __name__ == "__main__":
    main()
