"""The program of the home page, on a fake cluster."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaclient.testing.fake import FakeCluster

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "index.md"


async def test_the_first_record(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeCluster(3)
    fake.create_topic("flights", 3)
    (program,) = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert program.endswith("\nasyncio.run(main())\n")
    program = program.removesuffix("asyncio.run(main())\n")
    program = program.replace('"localhost:9092"', "fake.bootstrap, dialer=fake")
    names: dict[str, Any] = {"fake": fake}
    exec(compile(program, "docs/index.md", "exec"), names)  # noqa: S102 - our own page
    await names["main"]()
    assert sum(len(fake.log("flights", partition)) for partition in range(3)) == 1
    assert re.fullmatch(r"[0-2] 0\n", capsys.readouterr().out)
