"""Count words for ever: how often each word has been in the lines of a topic so far.

    python examples/word_count.py localhost:9092 lines --instance a

Topics that are not there are created: the one with lines, and one of counts. Start it
again with another --instance, here or on another machine, and tasks move over while counting goes
on; end one, in whatever way, and the others take its tasks. Each line counts once.
`kafkaclient streams describe word-count --bootstrap-server localhost:9092` shows who has what.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import signal
import sys
from pathlib import Path

from kafkaclient import KafkaError
from kafkaclient.admin import Admin, NewTopic
from kafkaclient.errors import TopicExistsError
from kafkaclient.streams import Emit, KeyValueStore, Record, Store, StreamsApp, Topic


def word_count(
    bootstrap: str, lines: str, counts: str, application: str, state_dir: Path
) -> StreamsApp:
    """Two processors: what is counted has to be in a partition by its word, lines are not. The
    application itself makes the topic ``words`` between them."""
    app = StreamsApp(
        bootstrap,
        application_id=application,
        state_dir=state_dir,
        processing_guarantee="exactly_once_v2",
        num_standby_replicas=1,
    )

    totals = Topic(counts, key=str, value=int)

    @app.processor(lines, value=str)
    async def split(record: Record[bytes | None, str], emit: Emit) -> None:
        for word in re.findall(r"\w+", record.value.lower()):
            await emit("words", word, key=word)

    @app.processor("words", key=str, value=str, store=Store("counts", key=str, value=int))
    async def count(record: Record[str, str], store: KeyValueStore[str, int], emit: Emit) -> None:
        store[record.key] = store.get(record.key, 0) + 1
        await emit(totals, store[record.key], key=record.key)

    return app


async def create_topics(bootstrap: str, names: list[str], partitions: int) -> None:
    """Leave those alone that exist."""
    async with Admin(bootstrap) as admin:
        outcomes = await admin.create_topics([NewTopic(name, partitions) for name in names])
    for error in outcomes.values():
        if error is not None and not isinstance(error, TopicExistsError):
            raise error


async def main() -> None:
    parser = argparse.ArgumentParser(description="Count the words of a topic's lines.")
    parser.add_argument("bootstrap", help="host:port of one broker or more, comma-separated")
    parser.add_argument("lines", help="the topic with lines; counts go to another")
    parser.add_argument("--partitions", type=int, default=4, help="of topics that are created")
    parser.add_argument("--application", default="word-count")
    parser.add_argument("--instance", default="a", help="another one for each process")
    parser.add_argument("--state-dir", type=Path, default=Path("state"))
    options = parser.parse_args()
    lines, counts = options.lines, f"{options.lines}-counts"
    await create_topics(options.bootstrap, [lines, counts], options.partitions)
    app = word_count(
        options.bootstrap,
        lines,
        counts,
        options.application,
        options.state_dir / options.instance,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, app.stop)
    await app.run()


if __name__ == "__main__":
    # Says which tasks come, go, and are restored.
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    try:
        asyncio.run(main())
    except KafkaError as error:  # a topic is missing, the directory is in use, ...
        sys.exit(f"ended: {error}")
