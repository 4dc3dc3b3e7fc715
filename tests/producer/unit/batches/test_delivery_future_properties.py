"""A delivery's future against asyncio's own future: the same script has the same outcomes.

The script cancels futures and the tasks that wait for them at random moments."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkaclient.errors import KafkaError
from tests.producer.unit.batches.test_delivery_future import Form, turns, wait

if TYPE_CHECKING:
    from collections.abc import Callable

_RECORDS = 3
_FUTURES = 2 * _RECORDS  # two for each record

_at = st.integers(0, _FUTURES - 1)
_steps = st.one_of(
    st.tuples(st.just("add"), _at, st.booleans()),
    st.tuples(st.just("remove"), _at),
    st.tuples(st.just("cancel"), _at),
    st.tuples(st.just("cancel_user"), _at),
    st.tuples(st.sampled_from(["wait_alone", "shield", "wait_for"]), _at),
    st.tuples(st.just("gather"), st.lists(_at, min_size=1), st.booleans()),
    st.tuples(st.just("wait"), st.sets(_at, min_size=1)),
    st.tuples(st.just("split")),
    st.tuples(st.just("end"), st.booleans()),
)
_scripts = st.lists(_steps, max_size=25)


@pytest.fixture(
    params=["asyncio", "uvloop"],
    scope="module",
)
def form(request: pytest.FixtureRequest) -> Form:
    module = pytest.importorskip(request.param)
    return Form(new_loop=module.new_event_loop)


class Ours:
    """Futures of deliveries."""

    def __init__(self, form: Form, loop: Any) -> None:
        self._form = form
        self.result, self.deliveries = form.sent(_RECORDS, loop)
        self._parts = [self.result]
        self.futures = [form.future(d) for d in self.deliveries * 2]

    def awaited(self, at: int) -> Any:
        return self.futures[at]

    in_wait_for = awaited

    def split(self) -> None:
        if not self._parts[0].done and len(self._parts) == 1:
            self._parts = self._form.split(self.result)

    def end(self, fails: bool) -> None:
        for n, part in enumerate(self._parts):
            if not part.done:
                part.fail(KafkaError("lost")) if fails else part.resolve(n)

    @property
    def waiting(self) -> int:
        return sum(part.waiting for part in (self.result, *self._parts))


class Model:
    """Futures of asyncio's. Its tasks cancel a future that they await, so they await a shield."""

    def __init__(self, loop: Any) -> None:
        self.futures = [loop.create_future() for _ in range(_FUTURES)]

    def awaited(self, at: int) -> Any:
        return asyncio.shield(self.futures[at])

    def in_wait_for(self, at: int) -> Any:
        return self.futures[at] if sys.version_info < (3, 12) else self.awaited(at)

    def split(self) -> None: ...

    def end(self, fails: bool) -> None:
        for at, future in enumerate(self.futures):
            if not future.done():
                if fails:
                    future.set_exception(KafkaError("lost"))
                else:
                    future.set_result(at % _RECORDS)


@dataclass
class Seen:
    """What a script led to."""

    called: dict[int, list[int]] = field(default_factory=dict)
    """By future: the numbers of the callbacks that were called, in order."""
    users: list[str] = field(default_factory=list)
    futures: list[str] = field(default_factory=list)
    reported: int = 0


def told(done: Any) -> str:
    """The outcome of a future or task."""
    if not done.done():
        return "pending"
    if done.cancelled():
        return "cancelled"
    if (error := done.exception()) is not None:
        return f"{type(error).__name__} {error}"
    return shown(done.result())


def shown(result: Any) -> str:
    if isinstance(result, tuple) and isinstance(result[0], set):
        return f"{len(result[0])} done, {len(result[1])} pending"
    if isinstance(result, list):
        return ", ".join(map(shown, result))
    if isinstance(result, BaseException):
        return f"{type(result).__name__} {result}"
    return str(getattr(result, "offset", result))


class Play:
    """Plays scripts: each step has a method."""

    def __init__(self, world: Any, loop: Any) -> None:
        self._world, self._loop = world, loop
        self._futures = world.futures
        self._added: list[tuple[int, Callable[[Any], None]]] = []
        self._users: list[Any] = []
        self._seen = Seen()
        loop.set_exception_handler(self._report)

    async def play(self, script: list[Any], pauses: Callable[[], int]) -> Seen:
        for step, *args in script:
            getattr(self, step)(*args)
            await turns(pauses())
        self._world.end(False)
        await turns(8)
        self._seen.users = [told(user) for user in self._users]
        self._seen.futures = [told(future) for future in self._futures]
        return self._seen

    def _report(self, loop: Any, context: dict[str, Any]) -> None:
        if str(context.get("exception")) == "a defect of the application":
            self._seen.reported += 1

    def add(self, at: int, fails: bool) -> None:
        number = len(self._added)

        def called(future: Any) -> None:
            assert future is self._futures[at]
            self._seen.called.setdefault(at, []).append(number)
            if fails:
                raise RuntimeError("a defect of the application")

        self._added.append((at, called))
        self._futures[at].add_done_callback(called)

    def remove(self, at: int) -> None:
        for added_at, callback in self._added:
            if added_at == at:
                self._futures[at].remove_done_callback(callback)
                return

    def cancel(self, at: int) -> None:
        self._futures[at].cancel("enough")

    def cancel_user(self, at: int) -> None:
        if at < len(self._users):
            self._users[at].cancel()

    def wait_alone(self, at: int) -> None:
        self._users.append(self._loop.create_task(wait(self._world.awaited(at))))

    def shield(self, at: int) -> None:
        self._users.append(asyncio.shield(self._futures[at]))

    def wait_for(self, at: int) -> None:
        waiting = asyncio.wait_for(self._world.in_wait_for(at), 60)
        self._users.append(self._loop.create_task(waiting))

    def gather(self, ats: list[int], return_exceptions: bool) -> None:
        futures = [self._futures[at] for at in ats]
        self._users.append(asyncio.gather(*futures, return_exceptions=return_exceptions))

    def wait(self, ats: set[int]) -> None:
        waiting = asyncio.wait([self._futures[at] for at in ats])
        self._users.append(self._loop.create_task(waiting))

    def split(self) -> None:
        self._world.split()

    def end(self, fails: bool) -> None:
        self._world.end(fails)


@given(script=_scripts)
def test_the_same_script_has_the_same_outcomes(form: Form, script: list[Any]) -> None:
    async def ours(loop: Any) -> None:
        world = Ours(form, loop)
        seen.append(await Play(world, loop).play(script, lambda: 6))
        assert world.waiting == 0

    async def model(loop: Any) -> None:
        seen.append(await Play(Model(loop), loop).play(script, lambda: 6))

    seen: list[Seen] = []
    form.run(ours, debug=False)
    form.run(model, debug=False)
    assert seen[0] == seen[1]


@given(script=_scripts, data=st.data())
def test_nothing_stays_pending(form: Form, script: list[Any], data: st.DataObject) -> None:
    """Whatever is cancelled in the iteration of the outcome or just before or after it; and the
    deliveries know nothing of it."""

    async def main(loop: Any) -> None:
        world = Ours(form, loop)
        seen = await Play(world, loop).play(script, lambda: data.draw(st.integers(0, 2)))
        assert "pending" not in seen.users
        assert "pending" not in seen.futures
        assert world.waiting == 0
        for numbers in seen.called.values():
            assert numbers == sorted(set(numbers)), "each at most once, in the order of the calls"
        assert all(delivery.done() for delivery in world.deliveries)
        assert all(
            told(future) in (told(delivery), "cancelled")
            for future, delivery in zip(world.futures, world.deliveries * 2, strict=True)
        )

    form.run(main, debug=False)
