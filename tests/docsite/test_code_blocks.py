"""The programs of the home page and of "Get started", on a fake cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kafkaclient.testing.fake import FakeCluster

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("page", "records"), [("index.md", 1), ("get-started/index.md", 3)])
async def test_the_first_records(
    page: str, records: int, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeCluster(3)
    fake.create_topic("flights", 3)
    (program,) = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    assert program.endswith("\nasyncio.run(main())\n")
    program = program.removesuffix("asyncio.run(main())\n")
    program = program.replace('"localhost:9092"', "fake.bootstrap, dialer=fake")
    names: dict[str, Any] = {"fake": fake}
    exec(compile(program, page, "exec"), names)  # noqa: S102 - our own page
    await names["main"]()
    assert sum(len(fake.log("flights", partition)) for partition in range(3)) == records
    assert re.fullmatch(r"[0-2] 0\n", capsys.readouterr().out)
