"""The reference page is the declarations, and nothing else."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import TYPE_CHECKING

import kafkaclient.config
from kafkaclient.config import ProducerConfig, render_reference

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "producer-options.md"


def test_committed_page_is_the_generated_one() -> None:
    assert PAGE.read_text("utf-8") == render_reference(), (
        "run: python -m kafkaclient.config > docs/reference/producer-options.md"
    )


def test_module_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    module = Path(kafkaclient.config.__file__).with_name("__main__.py")
    runpy.run_path(str(module), run_name="__main__")
    assert capsys.readouterr().out == render_reference()


def test_every_option_and_every_spelling_is_on_the_page() -> None:
    page = render_reference()
    for option in ProducerConfig.OPTIONS.values():
        assert re.search(rf"### `{option.name}`\n\n\w[^\n]+\.\n\n- Dotted: ", page)
        for name in (option.kafka_name, *option.aliases):
            assert f"`{name}`" in page


def test_each_section_is_there_once() -> None:
    titles = [line for line in render_reference().splitlines() if line.startswith("## ")]
    assert len(titles) == len(set(titles)) == 11
