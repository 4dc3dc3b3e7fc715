"""Which cluster the client is in, and which of its brokers' answers is newer.

Brokers answer from copies of the cluster's metadata, which may be old. Addresses may lead to
another broker, or to another cluster. These are all cases:

=====================================================  =============================================
Which cluster (Router applies these rules)
=====================================================  =============================================
The first answer of a bootstrap server                 Its cluster is the client's.
An answer without cluster id                           It counts as the same cluster, but proves
                                                       nothing.
A new connection to a known broker                     It proves its cluster before its first other
                                                       request: by ApiVersions v5 (KIP-1242), which
                                                       also proves the broker's id (with SASL a
                                                       second one, after the login); else by a
                                                       Metadata without topics. Otherwise it is
                                                       closed, and made again after the backoff.
A known broker answers for another cluster             The answer is refused, the connection closed.
REBOOTSTRAP_REQUIRED, another error, no brokers        The answer is refused and its connection is
                                                       closed. After REBOOTSTRAP_REQUIRED all
                                                       connections to that broker are closed. The
                                                       next server is asked.
A bootstrap server names another cluster, after        The client moves.
REBOOTSTRAP_REQUIRED, or after no broker answered for
``metadata.recovery.rebootstrap.trigger.ms``
A bootstrap server names another cluster otherwise     The client moves, unless one of up to
                                                       ``MAX_DIALED`` known brokers can be connected
                                                       within ``CONFIRM_S``.
The client moves (X to Y, or back to X)                Nothing of X is kept: connections, brokers,
                                                       topics, topic ids, leader epochs, hints,
                                                       producer ids and sequence numbers. The moving
                                                       waits until the connections are closed.
Names that lead elsewhere for a while                  Connections that are made meanwhile prove
                                                       nothing, and are made again.
Brokers that swapped addresses                         The same, from Kafka 4.4 on. Before, see
                                                       producer/sender/liveness.py.
=====================================================  =============================================

=====================================================  =============================================
Which answer about a topic is newer (:func:`merge`)
=====================================================  =============================================
The same topic id, or none; a newer leader epoch       The partition is taken.
The same topic id, or none; an older leader epoch      The answer looks old: the partition is not
                                                       taken.
No leader epoch (Metadata before version 9)            The partition is taken, as in Java.
A topic id that was never seen                         The topic was created again: it is taken, and
                                                       nothing of the old one is kept.
A topic id that was seen before                        The answer looks old: the topic is not taken.
``BELIEVED_ANSWERS`` answers that look old, over at    The last of them is taken: epochs started
least ``BELIEVED_AFTER_S``, and none between them      over, a hint was wrong, or an answer with an
that agrees with the view                              unknown id was the old one.
A leader that a response names (KIP-951)               It is taken if its epoch is newer.
=====================================================  =============================================

Each answer that looks old has the metadata requested again, within ``retry.backoff.max.ms``. So
once all brokers agree, the view agrees with them ``BELIEVED_AFTER_S`` and two such pauses later.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from kafkaclient.broker_errors import ErrorCode, broker_error
from kafkaclient.cluster.view import (
    NO_EPOCH,
    Broker,
    ClusterView,
    Doubt,
    PartitionView,
    TopicView,
)
from kafkaclient.errors import (
    BrokerConnectionError,
    BrokerError,
    ProtocolError,
    UnsupportedVersionError,
)
from kafkaclient.log_fields import log_fields

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sized
    from uuid import UUID

    from kafkaclient.cluster.view import LeaderHint
    from kafkaclient.cluster.waits import Outages
    from kafkaclient.config import ClientConfig
    from kafkaclient.errors import KafkaError
    from kafkaclient.wire.api import BrokerInfo, MetadataResult, TopicInfo


# --- Which cluster the client is in, and which of its brokers' answers is newer -------------------

T = TypeVar("T")

CONFIRM_S = 3.0  # how long known brokers are dialed before the client moves to another cluster
BELIEVED_ANSWERS = 3
BELIEVED_AFTER_S = 2.0

_REMEMBERED_IDS = 16
_MOST_LEFT_OUT = 10_000
"""How many partitions a response may leave out: each costs memory, but no byte in the response."""


class WrongBrokerError(BrokerConnectionError):
    """The address leads to another cluster, or to another broker of the cluster."""


class Identity:
    """The cluster that a client is in, and ``outages`` of brokers. All connections share it."""

    def __init__(self, outages: Outages) -> None:
        self.outages = outages
        self.cluster_id: str | None = None
        """None: not known."""
        self.newest_api_versions: int = -1
        """The newest ApiVersions version of the broker that connected last."""

    def problem(self, result: MetadataResult, server: str, *, known: bool) -> KafkaError | None:
        """Why a Metadata response is refused; None if it is not. ``known``: it came from a known
        broker, not from a bootstrap server. ``server`` names the broker for the message."""
        if result.error_code:
            error = broker_error(result.error_code, f"metadata request to {server}")
            error.retriable |= (
                result.error_code == ErrorCode.REBOOTSTRAP_REQUIRED
            )  # at another server
            return error
        if known and differs(self.cluster_id, result.cluster_id):
            return self.wrong_broker(server, f"is a broker of cluster {result.cluster_id!r}")
        if not result.brokers:
            # A broker that has just started knows no brokers; with its answer we would know none.
            return BrokerConnectionError(f"{server} answered with metadata that names no brokers")
        return None

    def wrong_broker(self, server: str, what: str) -> WrongBrokerError:
        return WrongBrokerError(
            f"{server} {what}; this client is in cluster {self.cluster_id!r}. No records are sent "
            "there: look at what the address leads to (DNS, proxies, addresses that are used again)"
        )


def is_final(error: KafkaError, failures: int, servers: int) -> bool:
    """Whether ``start`` gives up after this error, the last of ``failures`` in a row. An error of a
    single server is final only after as many failures as there are servers."""
    if error.retriable and not isinstance(error, ProtocolError):
        return False
    is_of_server = isinstance(error, (BrokerError, ProtocolError, UnsupportedVersionError))
    return failures >= servers or not is_of_server


def differs(known: T | None, answered: T | None) -> bool:
    """Whether these are the ids of two clusters, or of two topics. None: not known."""
    return known is not None and answered is not None and known != answered


def merge(
    old: ClusterView, result: MetadataResult, *, now: float, keep: Collection[str] | None = None
) -> ClusterView:
    """``old`` updated by a Metadata response.

    The brokers are taken from the response. Its topics without error are merged as the table says.
    Topics that are not in the response, or have an error or :func:`impossible` partitions, stay
    unchanged if ``keep`` names them (None: all). A response of another cluster keeps nothing.
    """
    if differs(old.cluster_id, result.cluster_id):
        old = ClusterView()
    topics = {name: topic for name, topic in old.topics.items() if keep is None or name in keep}
    last_infos = {name: info for name, info in old.last_infos.items() if name in topics}
    doubts = {name: doubt for name, doubt in old.doubts.items() if name in topics}
    for info in result.topics:
        name = info.name
        if info.error_code or not info.partitions or (keep is not None and name not in keep):
            continue
        if last_infos.get(name) is info:
            doubts.pop(name, None)
            continue
        if impossible(info):
            continue
        topic, looks_old = _merge_topic(topics.get(name), info)
        if not looks_old:
            doubts.pop(name, None)
            last_infos[name] = info
        else:
            last_infos.pop(name, None)
            doubt = doubts.get(name, Doubt(now, 0))
            doubts[name] = doubt = Doubt(doubt.since, doubt.answers + 1)
            if doubt.answers >= BELIEVED_ANSWERS and now - doubt.since >= BELIEVED_AFTER_S:
                del doubts[name]
                topic, last_infos[name] = _believed(topics[name], info), info
        topics[name] = topic
    return ClusterView(
        brokers=MappingProxyType({b.node_id: Broker(*b) for b in result.brokers}),
        topics=MappingProxyType(topics),
        controller_id=result.controller_id,
        cluster_id=old.cluster_id if result.cluster_id is None else result.cluster_id,
        fetched_at=now,
        last_infos=MappingProxyType(last_infos),
        doubts=MappingProxyType(doubts),
    )


def impossible(info: TopicInfo) -> str:
    """Why a topic cannot have these partitions; "" if it can."""
    numbers = [partition.partition for partition in info.partitions]
    if not numbers:
        return "no partition"
    lowest, highest = min(numbers), max(numbers)
    if lowest < 0:
        return f"a partition numbered {lowest}"
    if highest >= len(numbers) + _MOST_LEFT_OUT:
        return f"{len(numbers)} partitions, and one of them numbered {highest}"
    return ""


def _merge_topic(old: TopicView | None, info: TopicInfo) -> tuple[TopicView, bool]:
    """The topic with what is newer in the response, and whether the response looks old."""
    if old is not None and info.topic_id in old.former_ids:
        return old, True
    if old is None or differs(old.topic_id, info.topic_id):
        return _believed(old, info), False
    known = old.partitions
    told = _in_order(info.partitions, known)
    if info.topic_id is not None:
        # A topic with the same id never loses partitions: the response is out of date.
        told += known[len(told) :]
    both = list(zip(known, told, strict=False))
    # Unchanged objects stay the same, so that comparing them is cheap.
    partitions = (*[a if a == b else _newer(a, b) for a, b in both], *told[len(both) :])
    merged = TopicView(old.name, info.topic_id or old.topic_id, partitions, old.former_ids)
    looks_old = any(NO_EPOCH < b.leader_epoch < a.leader_epoch for a, b in both)
    return (old if old == merged else merged), looks_old


def _believed(old: TopicView | None, info: TopicInfo) -> TopicView:
    """The topic as the response has it."""
    topic_id: UUID | None = info.topic_id
    former_ids: list[UUID] = []
    if old is not None:
        topic_id = topic_id or old.topic_id
        before = (*old.former_ids, *filter(None, (old.topic_id,)))
        former_ids = [each for each in before if each != topic_id][-_REMEMBERED_IDS:]
    return TopicView(info.name, topic_id, _in_order(info.partitions, ()), tuple(former_ids))


def _in_order(
    told: tuple[PartitionView, ...], known: tuple[PartitionView, ...]
) -> tuple[PartitionView, ...]:
    """The partitions by number. Those that the response leaves out are unchanged."""
    numbers = [partition.partition for partition in told]
    if numbers == list(range(len(numbers))):
        return told
    by_number = dict(zip(numbers, told, strict=True))
    known += tuple(map(PartitionView, range(len(known), max(numbers) + 1)))
    return tuple([by_number.get(n, known[n]) for n in range(max(numbers) + 1)])


def _newer(old: PartitionView, told: PartitionView) -> PartitionView:
    if told.leader_epoch == NO_EPOCH:
        # From a broker without leader epochs: keep the known epoch as the minimum.
        return told._replace(leader_epoch=old.leader_epoch)
    return old if told.leader_epoch < old.leader_epoch else told


def with_leaders(
    view: ClusterView, hints: Iterable[LeaderHint], endpoints: Iterable[BrokerInfo] = ()
) -> ClusterView:
    """``view`` with the leaders that Produce responses named (KIP-951).

    A hint counts if its epoch is newer than the known one, and its leader's address is in the view
    or in ``endpoints``. Returns ``view`` itself if nothing changes.
    """
    addresses = {broker.node_id: Broker(*broker) for broker in endpoints}
    brokers = dict(view.brokers)
    changed: dict[str, list[PartitionView]] = {}
    for topic, partition, leader, epoch in hints:
        known = view.topics.get(topic)
        if known is None or not 0 <= partition < len(known.partitions):
            continue
        current = (changed.get(topic) or known.partitions)[partition]
        if epoch <= current.leader_epoch or (leader not in addresses and leader not in brokers):
            continue
        if leader in addresses:
            brokers[leader] = addresses[leader]
        if topic not in changed:
            changed[topic] = list(known.partitions)
        changed[topic][partition] = current._replace(leader=leader, leader_epoch=epoch)
    if not changed:
        return view
    topics = dict(view.topics)
    for topic, partitions in changed.items():
        topics[topic] = replace(topics[topic], partitions=tuple(partitions))
    return replace(
        view,
        brokers=MappingProxyType(brokers),
        topics=MappingProxyType(topics),
        last_infos=MappingProxyType({k: v for k, v in view.last_infos.items() if k not in changed}),
    )


# --- When a client goes back to the bootstrap servers ---------------------------------------------
# There are two reasons:
#
# - No known broker can be connected (KIP-899). A Metadata request then dials the bootstrap
#   servers, after at most ``MAX_DIALED`` known brokers with a head start of
#   ``HEAD_START_S`` each, and before brokers whose last attempt failed (``Router.metadata``).
# - Known brokers can be connected, but have not answered for
#   ``metadata.recovery.rebootstrap.trigger.ms``, or a broker requires it (KIP-1102). Then the next
#   Metadata request goes to the bootstrap servers (``take_turn``).
#
# Only Metadata requests go to bootstrap servers once brokers are known. identity.py decides whether
# the client then moves to the cluster that answers.

_log = logging.getLogger(__name__)

HEAD_START_S = 0.5  # how long one broker is dialed before the next one, for a call to any broker
MAX_DIALED = 5  # how many known brokers are dialed before the bootstrap servers


def is_enabled(config: ClientConfig) -> bool:
    return config.metadata_recovery_strategy == "rebootstrap"


class Rebootstrap:
    """Decides whether a Metadata request goes to the bootstrap servers."""

    def __init__(self, config: ClientConfig) -> None:
        self.required: bool = False
        """Whether a response required it, and none was used since."""
        self._enabled = is_enabled(config)
        self._trigger_s = config.metadata_recovery_rebootstrap_trigger_ms / 1000
        self._client_id = config.client_id
        self._failing_since = 0.0
        self._warned = False

    def require(self) -> None:
        """A broker has answered REBOOTSTRAP_REQUIRED."""
        self.required = self._enabled

    def take_turn(self, now: float, failures: int, known_brokers: Sized) -> bool:
        """Returns whether this request goes to the bootstrap servers, after ``failures`` failed
        requests in a row. Unless it is required, every second request goes to a known broker,
        because known brokers may come back, too. Without known brokers the router asks the
        bootstrap servers anyway.
        """
        if not failures:
            self._failing_since = now  # the requests fail from now on, if this one does
            self._warned = False
        if self.required:
            return True
        silent_s = now - self._failing_since
        turn = failures % 2 == 1 and len(known_brokers) > 0
        if not (self._enabled and turn and silent_s >= self._trigger_s):
            return False
        level, self._warned = logging.DEBUG if self._warned else logging.WARNING, True
        text = "no broker has answered for %.0f s: asking the bootstrap servers again"
        _log.log(level, text, silent_s, extra=log_fields(client_id=self._client_id))
        return True
