"""``kafkaclient top``: what it shows of a page, and what it says when there is none."""

from __future__ import annotations

import errno
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from kafkaclient.cli import top
from kafkaclient.cli.app import app
from kafkaclient.cli.live_view import LiveView
from kafkaclient.cli.producer_status import Trends
from kafkaclient.errors import ConfigError
from tests.cli.producer_support import broker, producer, times

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

PAGE = """\
# TYPE kafkaclient_producer_up gauge
kafkaclient_producer_up{client_id="orders"} 1.0
# TYPE kafkaclient_producer_broker_queue_bytes gauge
kafkaclient_producer_broker_queue_bytes{client_id="orders",broker="2"} 4096.0
# TYPE kafkaclient_producer_broker_excluded gauge
kafkaclient_producer_broker_excluded{client_id="orders",broker="2",reason="slow"} 1.0
kafkaclient_producer_broker_excluded{client_id="orders",broker="2",reason="overdue"} 0.0
"""


class Server:
    """Answers with ``pages``, one after the other; the last one again and again."""

    def __init__(self) -> None:
        self.pages: list[bytes] = [PAGE.encode()]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = outer.pages.pop(0) if len(outer.pages) > 1 else outer.pages[0]
                if self.path != "/metrics" or page == b"":
                    self.send_error(404)
                    return
                self.send_response(200)
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *_: object) -> None: ...

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["top", *words])


def test_once_as_json(server: Server) -> None:
    result = run(server.address, "--once", "--json")
    assert result.exit_code == 0, result.output
    (line,) = result.stdout.splitlines()
    (found,) = json.loads(line)["producers"]
    assert found["client_id"] == "orders"
    (first,) = found["brokers"]
    assert first["broker"] == 2
    assert first["queue_bytes"] == 4096
    assert first["excluded"] == "slow"
    assert first["p99_s"] is None
    assert list(first) == [
        "broker",
        "queue_bytes",
        "queue_batches",
        "in_flight",
        "window",
        "share",
        "bytes_per_s",
        "p50_s",
        "p99_s",
        "excluded",
        "exclusions",
    ]
    assert set(found) == {
        "client_id",
        "up",
        "records_per_s",
        "bytes_per_s",
        "records_failed",
        "records_retried",
        "buffer_used",
        "waiting_tasks",
        "queue_p50_s",
        "queue_p99_s",
        "brokers",
    }


ODD = (
    PAGE
    + """\
kafkaclient_producer_up{client_id="other"} NaN
kafkaclient_producer_records_sent_total{client_id="orders"} -Inf
kafkaclient_producer_buffer_size_bytes{client_id="orders"} 1e-300
kafkaclient_producer_buffer_available_bytes{client_id="orders"} 1e300
kafkaclient_producer_buffer_waiting_tasks{client_id="orders"} NaN
kafkaclient_producer_broker_queue_bytes{client_id="orders",broker="3"} +Inf
kafkaclient_producer_broker_in_flight_requests{client_id="orders",broker="2"} NaN
kafkaclient_producer_broker_in_flight_window{client_id="orders",broker="2"} +Inf
kafkaclient_producer_broker_produced_bytes_total{client_id="orders",broker="2"} NaN
kafkaclient_producer_broker_exclusions_total{client_id="orders",broker="2",reason="slow"} 1e400
# TYPE kafkaclient_producer_queue_seconds histogram
kafkaclient_producer_queue_seconds_bucket{client_id="orders",le="NaN"} 1
kafkaclient_producer_queue_seconds_bucket{client_id="orders",le="0.1"} +Inf
kafkaclient_producer_queue_seconds_bucket{client_id="orders",le="+Inf"} +Inf
"""
)


def no_json(name: str) -> None:
    pytest.fail(f"{name} is no JSON")


def test_values_that_are_no_numbers_are_not_known(server: Server) -> None:
    """Our own page leaves them out; that of a proxy or a recording may have them."""
    server.pages = [ODD.encode()]
    result = run(server.address, "--once", "--json")
    assert result.exit_code == 0, result.output
    found, other = json.loads(result.stdout, parse_constant=no_json)["producers"]
    assert [found["buffer_used"], found["queue_p50_s"], found["waiting_tasks"]] == [None, None, 0]
    assert found["brokers"][0]["in_flight"] == 0
    assert found["brokers"][0]["window"] is None
    assert not other["up"]
    result = run(server.address, "--once")
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("value", ["inf", "1e400", "nan", "0"])
def test_an_interval_that_is_no_time_is_refused(server: Server, value: str) -> None:
    result = run(server.address, "--interval", value)
    assert result.exit_code == 2
    assert "interval" in result.output


def test_a_reader_that_has_ended_gets_no_message(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with ``| head -1``."""

    def closed(*_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(top, "_print", closed)
    result = run(server.address, "--json")
    assert (result.exit_code, result.output) == (141, "")


def test_once_for_people(server: Server) -> None:
    result = run(server.address, "--once")
    assert result.exit_code == 0, result.output
    assert "orders" in result.stdout
    assert "slow" in result.stdout
    assert "4.1 KB" in result.stdout


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (b"", "cannot be read: .*Not Found"),
        (b"# TYPE up gauge\nup 1\n", "has no metrics of a producer"),
        (b"<html>hello</html>", "is no Prometheus page"),
        (b"\xff\xfe", "is no Prometheus page"),
        (PAGE.replace('"2"', '"two"').encode(), "is no Prometheus page"),
        (PAGE.replace(',broker="2"', "").encode(), "is no Prometheus page"),
    ],
    ids=["404", "another page", "html", "binary", "no node id", "no broker"],
)
def test_a_page_that_is_not_a_producers_is_an_error(
    server: Server, page: bytes, message: str
) -> None:
    server.pages = [page]
    result = run(server.address)
    assert result.exit_code == 1
    with pytest.raises(top.PageError, match=message):
        top.refresh(LiveView(), f"http://{server.address}/metrics")


def test_a_server_that_is_not_there_is_an_error() -> None:
    result = run("127.0.0.1:1", "--once", "--json")
    assert result.exit_code == 1
    assert "cannot be read" in result.stderr
    assert "cannot be read" in json.loads(result.stdout)["error"]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("h:9000", "http://h:9000/metrics"),
        ("https://h", "https://h/metrics"),
        ("http://h:9000/", "http://h:9000/metrics"),
        ("h:9000/", "http://h:9000/metrics"),
        ("http://h:1/x?y=z", "http://h:1/x?y=z"),
    ],
)
def test_what_may_be_left_out_of_the_url(url: str, address: str) -> None:
    assert top.page_address(url) == address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_proxy_is_used_for_this_machine(
    server: Server, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # nothing listens there
    address = server.address.replace("127.0.0.1", host)
    result = run(address, "--once", "--json")
    assert result.exit_code == 0, result.output


def test_a_proxy_is_used_for_other_machines(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    asked = f"http://producer.invalid/{server.address}"
    monkeypatch.setenv("http_proxy", f"http://{server.address}")
    with pytest.raises(top.PageError, match="Not Found"):  # the proxy's answer
        top.refresh(LiveView(), asked)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://h/metrics",
        "http://",
        "http://[::1",
        "[red]:9",
        "h:99999",
        "h:x",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="is no URL of a page"):
        top.page_address(url)


def test_a_wrong_url_is_one_line() -> None:
    result = run("[red]:9", "--once")
    assert result.exit_code == 2
    assert "'[red]:9' is no URL of a page" in result.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    "url",
    [
        "http://user:secret@h/",
        "user:secret@h",
        "http://user:secret@[h",
        "http://user:a/secret@h/",
        "http://user:1/secret@h/",
        "http://user:1?secret@h/",
        "http://user:#secret@h/",
    ],
)
def test_a_password_is_not_shown(url: str) -> None:
    result = run(url, "--once", "--json")
    assert result.exit_code == 2
    assert "cannot have a user name or password" in result.stderr.replace("\n", " ")
    assert "secret" not in result.output


def test_a_page_that_never_ends_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr(top.time, "monotonic", lambda: float(next(now)))
    with pytest.raises(TimeoutError, match="longer than 5 s"):
        top._body(SimpleNamespace(read1=lambda _: b"# x\n", length=None), 5.0)


def test_a_page_that_is_cut_off_is_an_error() -> None:
    parts = iter([PAGE.encode(), b""])
    with pytest.raises(OSError, match="the last 17 bytes of the page are missing"):
        top._body(SimpleNamespace(read1=lambda _: next(parts), length=17), 5.0)


def test_a_name_does_not_control_the_terminal(server: Server) -> None:
    server.pages = [PAGE.replace("orders", "\x1b[2J\x1b]0;owned\x07").encode()]
    result = run(server.address, "--once")
    assert result.exit_code == 0, result.output
    assert "owned" in result.stdout
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout


def test_once_it_ran_it_keeps_trying(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line a scrape, also of scrapes that fail; Ctrl-C ends it as any command."""
    server.pages = [PAGE.encode(), b"", PAGE.encode()]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(top.time, "sleep", sleep)
    result = run(server.address, "--json", "--interval", "5")
    assert result.exit_code == 130
    first, second, third = map(json.loads, result.stdout.splitlines())
    assert "Not Found" in second["error"]
    assert first["producers"][0]["client_id"] == third["producers"][0]["client_id"] == "orders"
    assert third["producers"][0]["brokers"][0]["bytes_per_s"] is not None
    assert slept == pytest.approx([5, 10, 15], abs=4)  # nothing sleeps here, so more is due


def test_the_screen_shows_the_error_above_what_was_seen(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.pages = [PAGE.encode(), b""]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) > 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(top.time, "sleep", sleep)
    result = run(server.address)
    assert result.exit_code == 130
    assert "trying again" in result.stdout
    assert result.stdout.index("trying again") < result.stdout.rindex("orders")


@pytest.mark.parametrize("width", [40, 50, 60, 80, 110, 200])
def test_it_fits_any_terminal(width: int) -> None:
    view = LiveView()
    view.producers = Trends().add(
        0.0,
        [
            producer(
                broker(0, 3e9, queue_bytes=12e6, in_flight=5.0, latencies=times(0.01)),
                broker(1, 1e9, excluded="availability", exclusions=3.0, latencies=times(1.5)),
                records_failed=2.0,
                waiting_tasks=4.0,
            ),
            producer(client_id="other", up=False),
        ],
    )
    console = Console(width=width, record=True, file=None, color_system=None)
    with console.capture() as captured:
        console.print(view)
    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    shown = "\n".join(lines)
    assert "p99" in shown
    assert ("75%" in shown) == (width >= 46)
    assert "12.0 MB" in shown
    assert ("█" in shown) == (width >= 78)
    assert "not running" in shown
    assert "availability" in shown.replace("\n", "") or width < 90
    assert "3x" in shown
