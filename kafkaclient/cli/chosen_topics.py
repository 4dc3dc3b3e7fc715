"""The topics that a command is for: by name or by pattern, and which of them failed."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from kafkaclient.broker_errors import broker_error
from kafkaclient.cli.connection import given_of
from kafkaclient.cli.output import FAILED, joined, print_message
from kafkaclient.errors import ConfigError, InvalidTopicError, KafkaError, UnknownTopicError
from kafkaclient.topic_names import check_topic_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kafkaclient.admin import Admin, TopicDescription

Topics = Annotated[
    list[str] | None, typer.Argument(metavar="TOPIC", help="The topics.", show_default=False)
]
Pattern = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX", help="The topics whose whole names match the regular expression."
    ),
]


class ChosenTopics(NamedTuple):
    """The named topics, or those of ``--pattern``; all topics without either."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None

    def __str__(self) -> str:
        return joined(self.names) if self.pattern is None else self.pattern.pattern

    @classmethod
    def parse(cls, names: list[str] | None, pattern: str | None) -> ChosenTopics:
        given_of({"TOPIC": names or None, "--pattern": pattern})
        try:
            for name in names or ():
                check_topic_name(name)
        except InvalidTopicError as error:
            raise ConfigError(f"{error}. A regular expression is given as --pattern") from error
        try:
            return cls(
                tuple(dict.fromkeys(names or ())), None if pattern is None else re.compile(pattern)
            )
        except re.error as error:
            raise ConfigError(f"--pattern {pattern!r} is no regular expression: {error}") from error

    def ignored_errors(self, if_exists: bool) -> tuple[type[KafkaError], ...]:
        """The errors to ignore: the topic was deleted meanwhile."""
        return (UnknownTopicError,) if if_exists or not self.names else ()

    async def described(
        self,
        admin: Admin,
        *,
        missing_ok: bool,
        left_out: Callable[[TopicDescription], bool] = lambda _: False,
    ) -> list[TopicDescription]:
        """The topics. A pattern does not match topics that are ``left_out``. Raises
        UnknownTopicError if there are none, unless ``missing_ok``."""
        if self.names:
            try:
                topics = await admin.describe_topics(self.names)
            except UnknownTopicError:
                if not missing_ok:
                    raise
                topics = {}
                for name in self.names:
                    with suppress(UnknownTopicError):
                        topics[name] = await admin.describe_topic(name)
            return [topics[name] for name in self.names if name in topics]
        found = await admin.describe_topics()
        if self.pattern is None:
            return list(found.values())
        alike = [each for name, each in found.items() if self.pattern.fullmatch(name)]
        matching = [each for each in alike if not left_out(each)]
        if not matching and not missing_ok:
            advice = "no topic that this client may describe has such a name"
            if alike:
                advice = f"{joined(each.name for each in alike)}: Kafka's own topics are left out"
            raise broker_error(3, f"--pattern {self.pattern.pattern}", advice=advice)
        return matching


def say_failed(outcomes: Iterable[object]) -> None:
    """Print the errors among these; exit with 1 if there are any."""
    failed = [each for each in outcomes if isinstance(each, KafkaError)]
    for error in failed:
        print_message("error", error)
    if failed:
        raise typer.Exit(FAILED)
