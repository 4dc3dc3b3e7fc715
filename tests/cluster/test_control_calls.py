"""Which broker answers a control call, and what else waits for it."""

from __future__ import annotations

import asyncio

import pytest

from kafkaclient.errors import BrokerConnectionError, ProtocolError, RequestTimedOutError
from kafkaclient.wire.metadata import MetadataCall
from tests.cluster.memory_cluster import Bench, benched, now, view_of


@benched()
async def test_what_is_not_a_broker_is_told_as_such(b: Bench) -> None:
    b.net.broken["b0:9092"] = ProtocolError("this speaks HTTP")
    with pytest.raises(ProtocolError, match="HTTP"):
        await b.router.call(MetadataCall())


@benched()
async def test_a_call_to_a_node(b: Bench) -> None:
    b.router.update_brokers(view_of(0, 1))
    await b.router.call(MetadataCall(), 1)
    assert [seen.address for seen in b.net.asked()] == ["b1:9092"]
    with pytest.raises(BrokerConnectionError, match="broker 7 is not known"):
        await b.router.call(MetadataCall(), 7)
    b.net.refusing.add("b0:9092")
    with pytest.raises(BrokerConnectionError, match="refused by b0"):
        await b.router.call(MetadataCall(), 0)


@benched()
async def test_control_calls_do_not_share_the_produce_connection(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    produce = await b.produce_connection(0)
    await b.router.call(MetadataCall(), 0)
    assert len(b.net.pipes) == 2
    b.net.silent.add("b0:9092")
    call = asyncio.create_task(b.router.call(MetadataCall(), 0))
    await asyncio.sleep(1)
    assert produce.in_flight == 0
    call.cancel()
    await asyncio.wait({call})


@benched()
async def test_a_purpose_of_the_callers_own_has_its_own_connection(b: Bench) -> None:
    """An answer that is long in coming holds up no control call; the connection can be let go."""
    b.router.update_brokers(view_of(0))
    await b.router.call(MetadataCall(), 0)
    await b.router.call(MetadataCall(), 0, purpose="fetch-1")
    b.net.silent.add("b0:9092")
    slow = asyncio.create_task(b.router.call(MetadataCall(), 0, purpose="fetch-1"))
    await asyncio.sleep(1)
    b.net.silent.clear()
    await b.router.call(MetadataCall(), 0)
    assert not slow.done()
    assert len(b.net.pipes) == 2
    b.router.release("fetch-1")
    with pytest.raises(BrokerConnectionError):
        await slow
    assert len(b.net.pipes) == 1
    await b.router.call(MetadataCall(), 0)


@benched()
async def test_a_stalled_broker_is_asked_last(b: Bench) -> None:
    b.router.update_brokers(view_of(0, 1, 2))
    for node in (0, 1, 2):
        await b.router.call(MetadataCall(), node)
    b.net.silent.update({"b0:9092", "b1:9092"})
    stuck = [asyncio.create_task(b.router.call(MetadataCall(), n)) for n in (0, 1)]
    await asyncio.sleep(1.5)
    b.net.seen.clear()
    for _ in range(10):
        await b.router.call(MetadataCall())
    assert {seen.address for seen in b.net.asked()} == {"b2:9092"}
    for call in stuck:
        with pytest.raises(RequestTimedOutError):
            await call


@benched()
async def test_calls_spread_over_live_brokers(b: Bench) -> None:
    b.router.update_brokers(view_of(0, 1, 2))
    for node in (0, 1, 2):
        await b.router.call(MetadataCall(), node)
    b.net.seen.clear()
    await asyncio.gather(*(b.router.call(MetadataCall()) for _ in range(30)))
    counts = [sum(s.address == f"b{n}:9092" for s in b.net.asked()) for n in range(3)]
    assert counts == [10, 10, 10]


@benched()
async def test_a_short_timeout_of_one_caller_disturbs_no_other_call(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    await b.router.call(MetadataCall(), 0)
    b.net.delay_s = 3.0
    patient = asyncio.create_task(b.router.call(MetadataCall(), 0))
    with pytest.raises(RequestTimedOutError, match=r"METADATA to broker 0 .* within 1 s"):
        await b.router.call(MetadataCall(), 0, timeout_s=1.0)
    assert (await patient).cluster_id == "mem"
    assert len(b.net.dials) == 1


@pytest.mark.parametrize("after", [0.0, 0.0005, 0.0015, 0.0025, 0.0029])
@benched()
async def test_a_call_cancelled_anywhere_leaves_the_way_open(b: Bench, after: float) -> None:
    b.router.update_brokers(view_of(0))
    calls = [asyncio.create_task(b.router.call(MetadataCall())) for _ in range(3)]
    await asyncio.sleep(after)
    calls[1].cancel()
    done, _ = await asyncio.wait(calls)
    assert done
    assert calls[1].cancelled()
    assert calls[0].result().cluster_id == calls[2].result().cluster_id == "mem"
    assert len(b.net.dials) == 1


@benched()
async def test_a_throttled_broker_is_left_in_peace(b: Bench) -> None:
    b.router.update_brokers(view_of(0))
    b.net.throttle_ms = 3000
    await b.router.call(MetadataCall(), 0)
    before = now()
    await b.router.call(MetadataCall(), 0)
    assert now() - before >= 3.0
    with pytest.raises(RequestTimedOutError):
        await b.router.call(MetadataCall(), 0, timeout_s=1.0)
