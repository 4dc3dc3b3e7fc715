"""Dialling, backoff, moving brokers, control calls, idle connections, the end."""

from __future__ import annotations

import asyncio
import itertools
from types import MappingProxyType
from typing import Any

import pytest

from kafkaclient.cluster.view import Broker, ClusterView
from kafkaclient.errors import (
    BrokerConnectionError,
    ProducerClosedError,
    ProtocolError,
    RequestTimedOutError,
)
from kafkaclient.testing.clock import virtual_time
from kafkaclient.wire.metadata import MetadataCall


def _view(*node_ids: int, port: int = 9092) -> ClusterView:
    brokers = {n: Broker(n, f"b{n}", port) for n in node_ids}
    return ClusterView(brokers=MappingProxyType(brokers))


def _now() -> float:
    return asyncio.get_running_loop().time()


# --- produce connections ----------------------------------------------------------------------


@virtual_time
async def test_a_produce_connection_comes_up_in_the_background(bench: Any) -> None:
    async with bench() as b:
        assert b.router.produce_connection(0) is None  # not known yet
        b.router.update_brokers(_view(0, 1))
        assert b.router.produce_connection(0) is None
        assert b.router.produce_connection(0) is None
        await asyncio.sleep(0.1)
        connection = b.router.produce_connection(0)
        assert connection is b.router.produce_connection(0)
        assert connection.api_versions is not None
        assert b.changes == [0]
        assert len(b.net.dials) == 1
        assert b.router.connection_error(0) is None
        b.net.lose_all()
        await asyncio.sleep(0)
        assert b.changes == [0, 0]
        assert b.router.produce_connection(0) is None
        assert "was lost" in str(b.router.connection_error(0))


@virtual_time
async def test_a_black_holed_broker_delays_only_itself(bench: Any) -> None:
    async with bench() as b:
        b.net.black_holes.add("b0:9092")
        b.router.update_brokers(_view(0, 1, 2))
        for node in (0, 1, 2):
            b.router.produce_connection(node)
        await asyncio.sleep(0.1)
        assert sorted(b.changes) == [1, 2]
        await asyncio.sleep(7.8)
        assert b.router.connection_error(0) is None
        await asyncio.sleep(4.2)  # 10 s, varied by 20 %
        assert "within" in str(b.router.connection_error(0))
        assert isinstance(b.router.connection_error(0), BrokerConnectionError)
        assert b.changes[-1] == 0


@virtual_time
async def test_the_setup_timeout_grows_to_its_ceiling(bench: Any) -> None:
    async with bench() as b:
        b.net.black_holes.add("b0:9092")
        b.router.update_brokers(_view(0))
        with pytest.raises(TimeoutError):
            await b.produce_connection(0, timeout_s=150)
        starts = [at for at, _ in b.net.dials]
        gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
        assert 8 <= gaps[0] <= 12.1
        assert 16 <= gaps[1] <= 24.2
        assert all(24 <= gap <= 31 for gap in gaps[2:])


@virtual_time
async def test_reconnects_back_off_exponentially_with_jitter(bench: Any) -> None:
    async with bench() as b:
        b.net.refusing.add("b0:9092")
        b.router.update_brokers(_view(0))
        with pytest.raises(TimeoutError):
            await b.produce_connection(0, timeout_s=20)
        starts = [at for at, _ in b.net.dials]
        gaps = [later - earlier for earlier, later in itertools.pairwise(starts)]
        for gap, expected in zip(gaps, (0.05, 0.1, 0.2, 0.4, 0.8), strict=False):
            assert 0.8 * expected <= gap <= 1.2 * expected + 0.01
        assert all(0.8 <= gap <= 1.01 for gap in gaps[5:])
        assert len(set(gaps)) == len(gaps)
        assert "refused by b0:9092" in str(b.router.connection_error(0))
        b.net.refusing.clear()
        await b.produce_connection(0, timeout_s=2)
        assert b.router.connection_error(0) is None


@virtual_time
async def test_nothing_is_dialled_that_nobody_asks_for(bench: Any) -> None:
    async with bench() as b:
        b.net.refusing.add("b0:9092")
        b.router.update_brokers(_view(0))
        b.router.produce_connection(0)
        await asyncio.sleep(100)
        assert len(b.net.dials) == 1


@virtual_time
async def test_a_connection_that_served_is_remade_without_a_pause(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0))
        await b.produce_connection(0)
        await asyncio.sleep(5)
        b.net.lose_all()
        await asyncio.sleep(0)
        before = _now()
        await b.produce_connection(0)
        assert _now() - before < 0.01


@virtual_time
async def test_a_broker_that_drops_each_connection_at_once_is_backed_off(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0))
        async with asyncio.timeout(30):
            for _ in range(20):
                await b.produce_connection(0)
                b.net.lose_all()
                await asyncio.sleep(0)
        assert _now() > 8


@virtual_time
async def test_a_broken_dialer_is_an_error_like_any_other(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench() as b:
        b.net.broken["b0:9092"] = ZeroDivisionError("a bug")
        b.router.update_brokers(_view(0))
        b.router.produce_connection(0)
        await asyncio.sleep(0.01)
        assert "ZeroDivisionError: a bug" in str(b.router.connection_error(0))
        assert any(record.exc_info for record in caplog.records)


@virtual_time
async def test_a_listener_that_raises_does_not_stop_the_dialling(
    bench: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench() as b:

        def broken(_: int) -> None:
            raise RuntimeError("listener broke")

        b.router.on_connection_change = broken
        b.router.update_brokers(_view(0))
        assert b.router.produce_connection(0) is None
        await asyncio.sleep(0.1)
        assert b.router.produce_connection(0) is not None
        assert "a listener failed" in caplog.text


@virtual_time
async def test_the_transports_back_pressure_reaches_the_listener(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0))
        connection = await b.produce_connection(0)
        connection.pause_writing()
        assert b.changes == [0]
        connection.resume_writing()
        assert b.changes == [0, 0]


@virtual_time
async def test_a_broker_that_moved_gets_new_connections(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0))
        old = await b.produce_connection(0)
        b.net.silent.add("b0:9092")
        pending = asyncio.create_task(old.call(MetadataCall()))
        await asyncio.sleep(0)
        b.net.brokers[0] = "b0:9999"
        b.router.update_brokers(_view(0, port=9999))
        assert old.closed
        with pytest.raises(BrokerConnectionError, match="has moved to b0:9999"):
            await pending
        new = await b.produce_connection(0)
        assert "b0:9999" in new.node


@virtual_time
async def test_a_broker_that_moves_while_it_is_dialled(bench: Any) -> None:
    async with bench() as b:
        b.net.black_holes.add("b0:9092")
        b.router.update_brokers(_view(0))
        assert b.router.produce_connection(0) is None
        await asyncio.sleep(0.1)
        b.net.brokers[0] = "b0:9999"
        b.router.update_brokers(_view(0, port=9999))
        before = _now()
        await b.produce_connection(0)
        assert _now() - before < 0.1


@pytest.mark.parametrize(("limit", "agreed"), [(4, 4), (3, 3), (2, 0)])
@virtual_time
async def test_a_broker_that_resets_on_api_versions_is_asked_an_older_way(
    bench: Any, limit: int, agreed: int
) -> None:
    async with bench() as b:
        b.net.resets_api_versions_above["b0:9092"] = limit
        b.router.update_brokers(_view(0))
        connection = await b.produce_connection(0)
        assert connection.api_versions_version == agreed
        dials = len(b.net.dials)
        await asyncio.sleep(5)
        b.net.lose_all()
        await asyncio.sleep(0)
        await b.produce_connection(0)
        assert len(b.net.dials) == dials + 1  # it remembers


@virtual_time
async def test_a_broker_that_always_resets_fails_the_attempt(bench: Any) -> None:
    async with bench() as b:
        b.net.resets_api_versions_above["b0:9092"] = -1
        b.router.update_brokers(_view(0))
        b.router.produce_connection(0)
        await asyncio.sleep(0.04)
        assert len(b.net.dials) == 3
        assert isinstance(b.router.connection_error(0), BrokerConnectionError)


@virtual_time
async def test_a_handshake_without_an_answer_ends_by_the_setup_timeout(bench: Any) -> None:
    async with bench() as b:
        b.net.silent.add("b0:9092")
        b.router.update_brokers(_view(0))
        b.router.produce_connection(0)
        await asyncio.sleep(12.1)
        assert "within" in str(b.router.connection_error(0))
        assert not b.net.pipes


# --- control calls ----------------------------------------------------------------------------


@virtual_time
async def test_bootstrap_servers_serve_until_brokers_are_known(bench: Any) -> None:
    async with bench(bootstrap="dead:1,b0:9092") as b:
        result = await b.router.call(MetadataCall())
        assert [broker.node_id for broker in result.brokers] == [0, 1, 2]
        assert [address for _, address in b.net.dials] == ["dead:1", "b0:9092"]
        b.router.update_brokers(_view(0, 1, 2))
        await asyncio.sleep(0.1)
        assert not b.net.pipes
        await b.router.call(MetadataCall())
        assert len(b.net.pipes) == 1


@virtual_time
async def test_a_black_holed_bootstrap_server_costs_half_a_second(bench: Any) -> None:
    async with bench(bootstrap="dead:1,b0:9092") as b:
        b.net.black_holes.add("dead:1")
        await b.router.call(MetadataCall())
        assert 0.5 <= _now() < 0.6


@virtual_time
async def test_no_reachable_broker_is_an_error_that_names_them_all(bench: Any) -> None:
    async with bench(bootstrap="dead:1,gone:2") as b:
        with pytest.raises(BrokerConnectionError, match=r"(?s)dead:1.*gone:2"):
            await b.router.call(MetadataCall())


@virtual_time
async def test_what_is_not_a_broker_is_told_as_such(bench: Any) -> None:
    async with bench() as b:
        b.net.broken["b0:9092"] = ProtocolError("this speaks HTTP")
        with pytest.raises(ProtocolError, match="HTTP"):
            await b.router.call(MetadataCall())


@virtual_time
async def test_bootstrap_servers_are_the_last_resort_again(bench: Any) -> None:
    async with bench(bootstrap="seed:9092") as b:
        b.net.brokers[9] = "seed:9092"
        b.net.refusing.update({"b0:9092", "b1:9092"})
        b.router.update_brokers(_view(0, 1))
        await b.router.call(MetadataCall())
        assert b.net.asked()[0].address == "seed:9092"


@virtual_time
async def test_a_call_to_a_node(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0, 1))
        await b.router.call(MetadataCall(), 1)
        assert [seen.address for seen in b.net.asked()] == ["b1:9092"]
        with pytest.raises(BrokerConnectionError, match="broker 7 is not known"):
            await b.router.call(MetadataCall(), 7)
        b.net.refusing.add("b0:9092")
        with pytest.raises(BrokerConnectionError, match="refused by b0"):
            await b.router.call(MetadataCall(), 0)


@virtual_time
async def test_control_calls_do_not_share_the_produce_connection(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0))
        produce = await b.produce_connection(0)
        await b.router.call(MetadataCall(), 0)
        assert len(b.net.pipes) == 2
        b.net.silent.add("b0:9092")
        call = asyncio.create_task(b.router.call(MetadataCall(), 0))
        await asyncio.sleep(1)
        assert produce.in_flight == 0
        call.cancel()
        await asyncio.wait({call})


@virtual_time
async def test_a_purpose_of_the_callers_own_has_its_own_connection(bench: Any) -> None:
    """An answer that is long in coming holds up no control call; the connection can be let go."""
    async with bench() as b:
        b.router.update_brokers(_view(0))
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


@virtual_time
async def test_a_stalled_broker_is_asked_last(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0, 1, 2))
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


@virtual_time
async def test_calls_spread_over_live_brokers(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0, 1, 2))
        for node in (0, 1, 2):
            await b.router.call(MetadataCall(), node)
        b.net.seen.clear()
        await asyncio.gather(*(b.router.call(MetadataCall()) for _ in range(30)))
        counts = [sum(s.address == f"b{n}:9092" for s in b.net.asked()) for n in range(3)]
        assert counts == [10, 10, 10]


@virtual_time
async def test_an_impatient_caller_disturbs_nobody(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0))
        await b.router.call(MetadataCall(), 0)
        b.net.delay_s = 3.0
        patient = asyncio.create_task(b.router.call(MetadataCall(), 0))
        with pytest.raises(RequestTimedOutError, match=r"METADATA to broker 0 .* within 1 s"):
            await b.router.call(MetadataCall(), 0, timeout_s=1.0)
        assert (await patient).cluster_id == "mem"
        assert len(b.net.dials) == 1


@pytest.mark.parametrize("after", [0.0, 0.0005, 0.0015, 0.0025, 0.0029])
@virtual_time
async def test_a_call_cancelled_anywhere_leaves_the_way_open(bench: Any, after: float) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0))
        calls = [asyncio.create_task(b.router.call(MetadataCall())) for _ in range(3)]
        await asyncio.sleep(after)
        calls[1].cancel()
        done, _ = await asyncio.wait(calls)
        assert done
        assert calls[1].cancelled()
        assert calls[0].result().cluster_id == calls[2].result().cluster_id == "mem"
        assert len(b.net.dials) == 1


@virtual_time
async def test_a_throttled_broker_is_left_in_peace(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0))
        b.net.throttle_ms = 3000
        await b.router.call(MetadataCall(), 0)
        before = _now()
        await b.router.call(MetadataCall(), 0)
        assert _now() - before >= 3.0
        with pytest.raises(RequestTimedOutError):
            await b.router.call(MetadataCall(), 0, timeout_s=1.0)


# --- idle connections and the end -------------------------------------------------------------


@virtual_time
async def test_idle_connections_are_closed_and_remade_when_needed(bench: Any) -> None:
    async with bench(connections_max_idle_ms=10_000) as b:
        b.router.update_brokers(_view(0, 1))
        await b.produce_connection(0)
        busy = await b.produce_connection(1)
        for _ in range(25):
            await asyncio.sleep(1)
            busy.last_used = _now()
        assert [pipe.address for pipe in b.net.pipes] == ["b1:9092"]
        assert b.router.connection_error(0) is None
        before = _now()
        await b.produce_connection(0)
        assert _now() - before < 0.01


@virtual_time
async def test_a_connection_with_requests_in_flight_is_not_idle(bench: Any) -> None:
    async with bench(connections_max_idle_ms=1000) as b:
        b.router.update_brokers(_view(0))
        connection = await b.produce_connection(0)
        b.net.delay_s = 20.0
        call = asyncio.create_task(connection.call(MetadataCall()))
        await asyncio.sleep(19)
        assert not connection.closed
        assert (await call).cluster_id == "mem"
        await asyncio.sleep(3)
        assert connection.closed


@virtual_time
async def test_connections_may_be_kept_for_ever(bench: Any) -> None:
    async with bench(connections_max_idle_ms=-1) as b:
        b.router.update_brokers(_view(0))
        connection = await b.produce_connection(0)
        await asyncio.sleep(100_000)
        assert not connection.closed


@virtual_time
async def test_links_to_brokers_that_are_gone_are_forgotten(bench: Any) -> None:
    async with bench(connections_max_idle_ms=1000) as b:
        b.router.update_brokers(_view(0, 1))
        await b.produce_connection(0)
        await b.produce_connection(1)
        b.router.update_brokers(_view(0))
        assert b.router.produce_connection(1) is None
        await asyncio.sleep(1.5)
        await b.produce_connection(0)
        await asyncio.sleep(3)
        assert set(b.router._links) == {(0, "produce")}


@virtual_time
async def test_close_ends_everything_at_once(bench: Any) -> None:
    async with bench() as b:
        b.net.black_holes.add("b2:9092")
        b.router.update_brokers(_view(0, 1, 2))
        connection = await b.produce_connection(0)
        b.router.produce_connection(2)
        b.net.silent.add("b0:9092")
        pending = [
            asyncio.create_task(connection.call(MetadataCall())),
            asyncio.create_task(b.router.call(MetadataCall(), 2)),
            asyncio.create_task(b.router.call(MetadataCall(), 0)),
        ]
        await asyncio.sleep(0.5)
        before = _now()
        changes = len(b.changes)
        await b.router.close()
        assert _now() == before
        results = await asyncio.gather(*pending, return_exceptions=True)
        assert all(isinstance(r, (BrokerConnectionError, ProducerClosedError)) for r in results)
        assert len(b.changes) == changes
        assert b.router.produce_connection(0) is None
        with pytest.raises(ProducerClosedError):
            await b.router.call(MetadataCall())
        await b.router.close()


@virtual_time
async def test_close_waits_a_moment_for_bytes_under_way(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0))
        await b.produce_connection(0)
        b.net.pipes[0].stuck = True
        before = _now()
        await b.router.close()
        assert _now() - before == pytest.approx(1.0)


@virtual_time
async def test_a_cancelled_close_still_cuts_the_connections(bench: Any) -> None:
    async with bench() as b:
        b.router.update_brokers(_view(0))
        await b.produce_connection(0)
        b.net.pipes[0].stuck = True
        closing = asyncio.create_task(b.router.close())
        await asyncio.sleep(0.1)
        closing.cancel()
        await asyncio.wait({closing})
        assert closing.cancelled()
        await asyncio.sleep(0)
        assert not b.net.pipes


@virtual_time
async def test_close_at_any_moment_of_an_attempt(bench: Any) -> None:
    for step in range(12):
        async with bench() as b:
            b.router.update_brokers(_view(0))
            b.router.produce_connection(0)
            for _ in range(step):
                await asyncio.sleep(0.0005)
            await b.router.close()


def test_making_a_router_needs_no_event_loop(bench: Any) -> None:
    assert bench().router.connection_error(0) is None


@pytest.mark.parametrize("idle_ms", [-1, 540_000])
@virtual_time
async def test_nothing_is_kept_of_connections_that_were_given_up(bench: Any, idle_ms: int) -> None:
    """Brokers that move, purposes that end, brokers that leave: while dialling or connected."""
    async with bench(connections_max_idle_ms=idle_ms) as b:
        await b.metadata.start()
        for n in range(20):
            if n % 2:
                await b.produce_connection(1)
            else:
                b.router.produce_connection(1)
            await b.router.call(MetadataCall(()), 2, purpose=f"fetch-{n}")
            b.router.release(f"fetch-{n}")
            del b.net.brokers[1]
            b.net.brokers[1] = f"b1:{10_000 + n}"
            b.metadata.request_refresh("b1 has moved")
            await asyncio.sleep(2)
            assert not b.router._retired
            assert len(b.router._links) <= 5
        for n in range(20):
            b.net.brokers[10 + n] = f"new:{n}"
            b.metadata.request_refresh("a broker has come")
            await asyncio.sleep(2)
            await b.produce_connection(10 + n)
            address = b.net.brokers.pop(10 + n)
            b.metadata.request_refresh("and is gone")
            await asyncio.sleep(2)
            b.net.lose_all(address)
            await asyncio.sleep(2)
            assert len(b.router._links) <= 5
