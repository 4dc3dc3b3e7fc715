"""``SyncProducer`` and processes: fork, spawn, and the end of the interpreter.

Each program has a fake cluster in its own memory. A forked child has a copy of its parent's.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from textwrap import dedent

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

PREAMBLE = """
import atexit, os, sys, threading, time
from kafkaclient import SyncProducer
from kafkaclient.testing import FakeCluster

fake = FakeCluster(1)
fake.create_topic("t", 1, 1)

def written():
    return [record.value.decode() for record in fake.log("t", 0)]

# Functions registered earlier run later: this one after those of SyncProducer.
atexit.register(lambda: print(*written(), flush=True))

producer = SyncProducer(fake.bootstrap, dialer=fake, linger_ms=LINGER, exit_timeout_s=EXIT)
"""


def start(code: str, exit_timeout_s: float = 20, linger_ms: int = 200) -> subprocess.Popen[str]:
    preamble = PREAMBLE.replace("EXIT", str(exit_timeout_s)).replace("LINGER", str(linger_ms))
    # The producer's exit functions are registered when its module is imported.
    preamble = preamble.replace("from kafkaclient import SyncProducer\n", "")
    preamble = preamble.replace("producer = ", "from kafkaclient import SyncProducer\nproducer = ")
    return subprocess.Popen(
        [sys.executable, "-W", "default", "-c", preamble + dedent(code)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, exit_timeout_s: float = 20, linger_ms: int = 200) -> tuple[list[str], str]:
    """The words that the program prints, and what it writes to stderr, except that its event loop
    stood still: on a busy machine it does."""
    with start(code, exit_timeout_s, linger_ms) as process:
        printed, errors = process.communicate(timeout=40)
    assert process.returncode == 0, errors
    told = [line for line in errors.splitlines(True) if "event loop stood still" not in line]
    return printed.split(), "".join(told)


def test_records_are_sent_before_the_interpreter_ends() -> None:
    printed, errors = run("for n in range(3): producer.send('t', b'%d' % n)")
    assert printed == ["0", "1", "2"]
    assert errors == ""


def test_records_of_threads_that_outlive_the_main_thread_are_sent() -> None:
    printed, errors = run("""
        def work():
            threading.main_thread().join()
            producer.send("t", b"late")

        threading.Thread(target=work).start()
        producer.send("t", b"early")
    """)
    assert printed == ["early", "late"]
    assert errors == ""


def test_an_end_without_an_answer_is_bounded_and_warns() -> None:
    printed, errors = run(
        """
        producer.send_and_wait("t", b"0")
        fake.stall_broker(0)
        producer.send("t", b"1")
        """,
        exit_timeout_s=0.2,
    )
    assert printed[0] == "0"
    assert "the program ends with 1 record undelivered" in errors
    assert "Traceback" not in errors


def test_an_end_before_the_first_connection_is_bounded_and_warns() -> None:
    _, errors = run(
        """
        fake.stall_broker(0)
        producer.send("t", b"1")
        """,
        exit_timeout_s=0.2,
    )
    assert "the program ends with 1 record undelivered" in errors
    assert "Traceback" not in errors


def test_ctrl_c_ends_the_program_and_its_records_are_sent() -> None:
    with start("""
        producer.send("t", b"0")
        producer.send_and_wait("t", b"1")
        fake.delay_produce(0, 0.3)
        future = producer.send("t", b"2")
        print("waiting", flush=True)
        future.result()
    """) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        printed, errors = process.communicate(timeout=40)
    assert process.returncode == -signal.SIGINT
    assert errors.count("KeyboardInterrupt") == 1
    assert printed.split() == ["0", "1", "2"]


def test_a_second_ctrl_c_ends_without_waiting() -> None:
    code = """
        producer.send_and_wait("t", b"0")
        fake.stall_broker(0)
        future = producer.send("t", b"1")
        flush = producer._thread.flush
        producer._thread.flush = lambda: (print("ending", flush=True), flush())[1]
        print("waiting", flush=True)
        future.result()
    """
    with start(code, exit_timeout_s=60) as process:
        assert process.stdout is not None
        for expected in ("waiting", "ending"):
            assert process.stdout.readline() == f"{expected}\n"
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert "the program ends with 1 record undelivered" in errors


def test_a_dropped_producer_is_flushed_at_the_end() -> None:
    printed, errors = run("""
        import gc
        producer.send("t", b"0")
        del producer
        gc.collect()
    """)
    assert printed == ["0"]
    assert "ResourceWarning: unclosed <SyncProducer" in errors


FORK = """
    producer.send("t", b"parent-1")              # not sent yet: it lingers for 10 s
    {before}
    child = os.fork()
    if child == 0:
        producer.send("t", b"child-1")
        {check}
        producer.send("t", b"child-2")
        sys.exit()
    producer.send("t", b"parent-2")
    assert os.waitpid(child, 0)[1] == 0
    assert producer.close() == 0
"""


@pytest.mark.parametrize("before", ["pass", "producer.flush()", "producer.start()"])
@pytest.mark.parametrize("uvloop", [True, pytest.param(False, marks=pytest.mark.full)])
def test_a_forked_child_has_a_producer_of_its_own(before: str, uvloop: bool) -> None:
    """Nothing of the parent's is sent by the child, and the child's records are sent at its end."""
    check = "waited = producer.send('t', b'child-waited'); producer.flush()"
    check += "; assert waited.result().topic == 't'"
    code = dedent(FORK).format(before=before, check=check)
    if not uvloop:
        code = "import kafkaclient.sync.thread as t; t.loop_factory = lambda: None\n" + code
    printed, errors = run(code, linger_ms=10_000)
    flushed = ["parent-1"] * (before == "producer.flush()")
    child = [*flushed, "child-1", "child-waited", "child-2"]
    # At its end each process prints its log; the child comes first.
    assert printed == [*child, "parent-1", "parent-2"]
    assert "Traceback" not in errors
    assert "loop" not in errors.replace("multi-threaded", "")


def test_a_forked_child_has_the_series_of_its_own_producer() -> None:
    """Parent and child use one collector; the child's page has nothing of the parent's producer."""
    printed, errors = run("""
        from prometheus_client import CollectorRegistry
        from kafkaclient.prometheus import ProducerMetricsCollector

        registry = CollectorRegistry()
        metrics = ProducerMetricsCollector(registry)
        producer = SyncProducer(fake.bootstrap, dialer=fake, client_id="web", hooks=metrics)

        def page():
            names = ("up", "records_sent_total", "queue_seconds_count")
            name = "kafkaclient_producer_"
            found = [registry.get_sample_value(name + n, {"client_id": "web"}) for n in names]
            return str(found).replace(" ", "")

        for n in range(3):
            producer.send_and_wait("t", b"parent")
        if os.fork() == 0:
            before = page()
            producer.send_and_wait("t", b"child")
            print(before, page(), flush=True)
            os._exit(0)
        os.wait()
        print(page())
        producer.close()
        print(page())
    """)
    child = ["[None,None,None]", "[1.0,1.0,1.0]"]
    assert printed[:4] == [*child, "[1.0,3.0,3.0]", "[0.0,3.0,3.0]"]
    assert "Traceback" not in errors
    assert "has no series" not in errors


def test_a_fork_waits_until_the_thread_holds_no_lock() -> None:
    """Such as the lock of a module that it imports: the child would wait for it for ever."""
    run("""
        lock, locked = threading.Lock(), threading.Event()

        def work():
            with lock:
                locked.set()
                time.sleep(0.1)

        producer.start()
        producer._thread._loop.call_soon_threadsafe(work)
        locked.wait()
        child = os.fork()
        if child == 0:
            os._exit(not lock.acquire(timeout=5))
        assert os.waitpid(child, 0)[1] == 0
        producer.send_and_wait("t", b"x")
    """)


def test_a_child_does_not_wait_for_its_parents_records() -> None:
    printed, _ = run("""
        fake.stall_broker(0)
        future = producer.send("t", b"parent")
        child = os.fork()
        if child == 0:
            from kafkaclient.errors import ProducerStateError
            try:
                future.result()
            except ProducerStateError as error:
                os._exit("forked child" not in str(error))
        fake.resume_broker(0)
        assert os.waitpid(child, 0)[1] == 0
    """)
    assert printed == ["parent"]


def test_a_closed_producer_is_closed_in_a_child_too() -> None:
    run("""
        producer.close()
        child = os.fork()
        if child == 0:
            from kafkaclient.errors import ProducerClosedError
            try:
                producer.send("t", b"x")
            except ProducerClosedError:
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    """)


def test_workers_of_multiprocessing_flush_at_their_end() -> None:
    """They end by ``os._exit``, without the functions of ``atexit``."""
    printed, errors = run("""
        import multiprocessing

        def work(name):
            producer.send("t", name)
            threading.Thread(target=report).start()

        def report():
            threading.main_thread().join()
            while not written():
                time.sleep(0.001)
            print(*written(), flush=True)

        producer.send_and_wait("t", b"parent")
        fork = multiprocessing.get_context("fork")
        child = fork.Process(target=work, args=(b"child",))
        child.start()
        child.join()
        assert child.exitcode == 0
    """)
    assert printed == ["parent", "child", "parent"], errors


def test_a_spawned_process_makes_its_own() -> None:
    """What is at module level is made again there; a producer as an argument is refused."""
    run("""
        import multiprocessing

        spawn = multiprocessing.get_context("spawn")
        try:
            spawn.Process(target=print, args=(producer,)).start()
        except TypeError as error:
            assert "have each process create its own" in str(error)
        else:
            raise AssertionError
    """)


def test_ctrl_c_during_a_fork_leaves_the_producer_at_work() -> None:
    """It ends the fork's wait for the producer's threads. None may stay paused."""
    _, errors = run("""
        import signal

        others = [SyncProducer(fake.bootstrap, dialer=fake) for _ in range(2)]
        producers = [others[0], producer, others[1]]
        for p in producers:
            p.start()
        asked = threading.Event()

        def busy():
            asked.wait()
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

        producer._thread._loop.call_soon_threadsafe(busy)
        pause = producer._thread.pause
        producer._thread.pause = lambda *args: (asked.set(), pause(*args))
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        for p in producers:
            p.send("t", b"x").result(8)  # a thread that stayed paused goes on after 10 s
            p.close()
    """)
    assert errors.count("KeyboardInterrupt") == 1
