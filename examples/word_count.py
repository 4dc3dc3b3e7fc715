"""Count words for ever: how often each word has been in the lines of a topic so far.

    python examples/word_count.py localhost:9092 lines --instance a

Topics that are not there are created: the one with lines, one of words, one of counts. Start it
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
from kafkaclient.streams import StreamsApp


def word_count(
    bootstrap: str, lines: str, words: str, counts: str, application: str, state_dir: Path
) -> StreamsApp:
    """Two processors: what is counted has to be in a partition by its word, lines are not."""
    app = StreamsApp(
        bootstrap,
        application_id=application,
        state_dir=state_dir,
        processing_guarantee="exactly_once_v2",
        num_standby_replicas=1,
    )

    @app.processor(lines, store="lines")
    async def split(record, store, emit) -> None:
        store.put(b"lines", b"%d" % (int(store.get(b"lines") or 0) + 1))
        for word in re.findall(rb"\w+", record.value.lower()):
            await emit(words, b"", word)

    @app.processor(words, store="counts")
    async def count(record, store, emit) -> None:
        number = b"%d" % (int(store.get(record.key) or 0) + 1)
        store.put(record.key, number)
        await emit(counts, number, record.key)

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
    parser.add_argument("lines", help="the topic with lines; words and counts go to two more")
    parser.add_argument("--partitions", type=int, default=4, help="of topics that are created")
    parser.add_argument("--application", default="word-count")
    parser.add_argument("--instance", default="a", help="another one for each process")
    parser.add_argument("--state-dir", type=Path, default=Path("state"))
    options = parser.parse_args()
    topics = [options.lines, f"{options.lines}-words", f"{options.lines}-counts"]
    await create_topics(options.bootstrap, topics, options.partitions)
    app = word_count(
        options.bootstrap,
        *topics,
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
