from __future__ import annotations

import pytest

from experiments.payload import numbered_payloads


def test_numbered_values_all_differ_and_have_the_size() -> None:
    values = [value for key, value in numbered_payloads(20, 20_000) if key is None]
    assert len(set(values)) == 20_000
    assert {len(value) for value in values} == {20}
    assert values[7].startswith(b"000000000007")
    with pytest.raises(ValueError, match="at least 12 bytes"):
        numbered_payloads(11, 1)
