"""The comparison of sync producers."""

from __future__ import annotations

from benchmarks.sync_send import _ours, _ours_many, measure
from kafkaclient.testing import FakeCluster


def test_our_ways_are_measured() -> None:
    for way in (_ours, _ours_many):
        fake = FakeCluster(1)
        fake.create_topic("t", 1, 1)
        with way(fake.bootstrap, "t", dialer=fake) as client:
            cost = measure(client, 2000)
        assert 0 < cost.call < cost.delivered
        assert len(fake.log("t", 0)) == 3000
