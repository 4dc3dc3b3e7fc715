"""``kafkaclient top``: what the clients of a Prometheus page do, every second."""

from __future__ import annotations

import http.client
import ipaddress
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

import typer
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Group
from rich.live import Live
from rich.text import Text

from kafkaclient.cli.connection import described
from kafkaclient.cli.live_view import LiveView, printable
from kafkaclient.cli.output import picked, run_blocking, stdout_console
from kafkaclient.errors import ConfigError
from kafkaclient.prometheus.names import CONSUMER_PREFIX, PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from kafkaclient.cli.consumer_status import ConsumerTrend
    from kafkaclient.cli.producer_status import ProducerTrend

_TIMEOUT_S = 5.0
_DAY_S = 86_400
_LARGEST_PAGE = 64 * 2**20  # bytes
_LARGEST_READ = 2**16  # bytes


class PageError(OSError):
    """The page could not be fetched, or has no metrics of a client."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(" ".join(text.split())))  # it may quote the server


@described
def top(
    *,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="The program's Prometheus page; localhost:9000 is http://localhost:9000/metrics.",
        ),
    ],
    interval: Annotated[
        float, typer.Option(min=0.1, max=_DAY_S, help="Seconds between scrapes of the page.")
    ] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON for each scrape.")
    ] = False,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Scrape once. Rates are not known then; shares and "
            "percentiles are since the producer's start.",
        ),
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds that the page may take to arrive.")
    ] = _TIMEOUT_S,
) -> None:
    """Show what producers do, per broker: queue, requests in flight, share, latency, exclusions;
    and what consumers do: records per second, lag, rebalances, the partitions furthest behind.

    Reads a page that a program shows with kafkaclient.prometheus, also one with several clients.
    Shares and percentiles are of the last 10 seconds. Ctrl-C ends it.

    Example:

    - `kafkaclient top localhost:9000`
    """
    run_blocking(lambda: _top(page_address(url), interval, timeout, as_json, once))


def _top(address: str, interval_s: float, timeout_s: float, as_json: bool, once: bool) -> None:
    view = LiveView()
    scrape = partial(refresh, view, address, timeout_s)
    try:
        scrape()
    except PageError as first:  # ends the command; later errors do not
        if as_json:
            _print(view, as_json, str(first))
        raise
    if once:
        _print(view, as_json)
    elif as_json:
        _print(view, as_json)
        for error in _refreshes(scrape, interval_s):
            _print(view, as_json, error)
    else:
        _draw(view, address, scrape, interval_s)


def page_address(url: str) -> str:
    """The page's URL: ``http://`` is added if there is no scheme, and ``/metrics`` if the path is
    empty or ``/``. Raises ConfigError if it is no http URL, or has a user name."""
    full = url if "://" in url else f"http://{url}"
    if "@" in full:  # anywhere: a password may have "/", "?" and "#"
        raise ConfigError(  # shows neither
            "a page's URL cannot have a user name or password; an @ in its path or query is %40"
        )
    try:
        parts = urllib.parse.urlsplit(full)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a wrong IPv6 address or port
        is_usable = False
    if not is_usable:
        raise ConfigError(f"{url!r} is no URL of a page: expected http://HOST:PORT/metrics")
    if parts.path in ("", "/"):
        full = urllib.parse.urlunsplit(parts._replace(path="/metrics"))
    return full


def refresh(view: LiveView, address: str, timeout_s: float = _TIMEOUT_S) -> None:
    """Fetch the page, and show it in ``view``. Raises PageError."""
    text = _fetch(address, timeout_s)
    try:
        families = list(text_string_to_metric_families(text))
        if any(family.name.startswith((PREFIX, CONSUMER_PREFIX)) for family in families):
            view.show(families)
            return
    except (ValueError, KeyError) as error:
        raise PageError(f"{address} is no Prometheus page: {error}") from error
    raise PageError(
        f"{address} has no metrics of a producer or consumer (kafkaclient_producer_...): is this "
        "the page of a program that uses kafkaclient.prometheus?"
    )


def _fetch(address: str, timeout_s: float) -> str:
    try:
        # page_address has checked the scheme.
        request = urllib.request.Request(address, headers={"Accept": "text/plain;version=0.0.4"})  # noqa: S310
        with _opener(address).open(request, timeout=timeout_s) as answer:
            return _body(answer, timeout_s).decode()
    except UnicodeDecodeError as error:
        raise PageError(f"{address} is no Prometheus page: {error}") from error
    except urllib.error.HTTPError as error:
        error.close()
        raise PageError(f"{address} cannot be read: {error}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise PageError(f"{address} cannot be read: {getattr(error, 'reason', error)}") from error


def _body(answer: http.client.HTTPResponse, timeout_s: float) -> bytes:
    """The whole body. The time limit of a socket holds for each read only, and a body that is cut
    off is no error of ``read(size)``. Raises OSError."""
    page, ends = bytearray(), time.monotonic() + timeout_s
    while part := answer.read1(_LARGEST_READ):
        page += part
        if time.monotonic() > ends:
            raise TimeoutError(f"the page takes longer than {timeout_s:g} s")
        if len(page) > _LARGEST_PAGE:
            raise OSError(f"the page has more than {_LARGEST_PAGE >> 20} MB")
    if answer.length:
        raise OSError(f"the last {answer.length} bytes of the page are missing")
    return bytes(page)


def _opener(address: str) -> urllib.request.OpenerDirector:
    """Uses the proxy of the environment, except for this machine's own addresses."""
    own = _is_loopback(urllib.parse.urlsplit(address).hostname or "")
    return urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if own else []))


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name


def _refreshes(scrape: Callable[[], None], interval_s: float) -> Iterator[str | None]:
    """Scrape every ``interval_s`` seconds, without an end. Yields None, or the error of a
    scrape that failed."""
    due = time.monotonic()
    while True:
        due = max(due + interval_s, time.monotonic())
        time.sleep(max(due - time.monotonic(), 0.0))
        try:
            scrape()
        except PageError as error:
            yield str(error)
        else:
            yield None


def _draw(view: LiveView, address: str, scrape: Callable[[], None], interval_s: float) -> None:
    console = stdout_console()
    with Live(_screen(view, address), console=console, auto_refresh=False, screen=False) as live:
        live.refresh()
        for error in _refreshes(scrape, interval_s):
            live.update(_screen(view, address, error), refresh=True)


def _screen(view: LiveView, address: str, error: str | None = None) -> RenderableType:
    at = datetime.now(tz=UTC).astimezone().strftime("%H:%M:%S")
    title = Text(f"{address}  {at}", "dim")
    if error is None:
        return Group(title, view)
    return Group(title, Text(f"{error}; trying again", "bold red"), view)


def _print(view: LiveView, as_json: bool, error: str | None = None) -> None:
    if not as_json:
        stdout_console().print(view)
        return
    found: dict[str, Any] = {"time": datetime.now(tz=UTC).isoformat(timespec="milliseconds")}
    if error is None:
        found["producers"] = [as_values(producer) for producer in view.producers]
        found["consumers"] = [_consumer_values(consumer) for consumer in view.consumers]
    else:
        found["error"] = error
    typer.echo(json.dumps(_finite(found), allow_nan=False))


def _finite(value: Any) -> Any:
    """``value`` with None in place of NaN and infinity, which are no JSON. The arithmetic with huge
    values of a page can give them."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value


def as_values(producer: ProducerTrend) -> dict[str, Any]:
    """A producer for JSON. Histories are left out because earlier lines have them, and histograms
    because their percentiles are there."""
    brokers = [
        {
            **picked(broker.status, "broker", "queue_bytes", "queue_batches"),
            **picked(broker.status, "in_flight", "window"),
            **picked(broker, "share", "bytes_per_s", "p50_s", "p99_s"),
            **picked(broker.status, "excluded", "exclusions"),
        }
        for broker in producer.brokers
    ]
    return {
        **picked(producer.status, "client_id", "up"),
        **picked(producer, "records_per_s", "bytes_per_s"),
        **picked(producer.status, "records_failed", "records_retried", "waiting_tasks"),
        **picked(producer, "buffer_used", "queue_p50_s", "queue_p99_s"),
        "brokers": brokers,
    }


def _consumer_values(consumer: ConsumerTrend) -> dict[str, Any]:
    values = consumer.status._asdict()
    values["partitions"] = [each._asdict() for each in consumer.status.partitions]
    return values | {"records_per_s": consumer.records_per_s}
