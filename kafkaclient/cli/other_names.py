"""What commands and options of Kafka's scripts, kcat and rpk are here: an error names it."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

from typer.core import TyperGroup

_SCRIPTS = {
    "kafka-topics": "topics",
    "kafka-configs": "configs",
    "kafka-consumer-groups": "groups",
    "kafka-console-producer": "produce",
    "kafka-console-consumer": "consume",
    "kafka-reassign-partitions": "reassign",
    "kafka-leader-election": "topics elect-leaders",
    "kafka-get-offsets": "topics offsets",
    "kafka-delete-records": "topics delete-records",
    "kafka-producer-perf-test": "perf-test",
    "kafka-streams-application-reset": "streams reset",
}
_COMMANDS = {
    "kcat": "consume' or 'produce",
    "help": "--help",
    "version": "--version",
    "brokers": "cluster describe",
    "broker": "cluster describe",
    "topics alter": "topics add-partitions' or 'configs alter",
    "topics alter-config": "configs alter",
    "topics count": "topics offsets",
    "topics consume": "consume",
    "topics produce": "produce",
    "topics trim-prefix": "topics delete-records",
    "groups seek": "groups reset-offsets",
    "groups offset-delete": "groups delete-offsets",
    "configs set": "configs alter",
    "cluster info": "cluster describe",
    "cluster start": "cluster up",
    "cluster stop": "cluster down' or, for one broker, 'cluster kill",
    "throttle list": "throttle show",
    "throttle remove": "throttle clear",
}
"""Commands of kcat and rpk, and what else one may guess."""
_ELSEWHERE = {"acl", "acls", "user", "users", "security", "quota", "quotas", "scram"}
_NAMES = {"topic", "topics", "group", "application-id"}
"""Options of Kafka's scripts for names, which are arguments here."""
_OPTIONS = {
    "from-beginning": "consume begins there, unless --from says otherwise",
    "max-messages": "--count",
    "offset": "--from",
    "property": "--key-delimiter, --format, or -X for an option of the client",
    "consumer-property": "-X",
    "producer-property": "-X",
    "consumer.config": "--command-config",
    "producer.config": "--command-config",
    "to-earliest": "--to earliest",
    "to-latest": "--to latest",
    "to-offset": "--to 1200",
    "to-datetime": "--to 2026-11-28T15:00",
    "by-duration": "--to 2h",
    "shift-by": "--to +N or --to N-",
    "dry-run": "nothing is changed without --execute",
    "all-topics": "all topics of the group, unless --topic names some",
    "all-groups": "kafkaclient groups lag",
    "state": "kafkaclient groups list shows the states",
    "members": "kafkaclient groups describe shows the members",
    "alter": "kafkaclient topics add-partitions, or configs alter",
    "entity-type": "TOPIC, --broker ID or --broker-defaults",
    "entity-name": "TOPIC, --broker ID or --broker-defaults",
    "broker-list": "-b",
    "t": "topics are named without an option",
    "C": "kafkaclient consume TOPIC",
    "P": "kafkaclient produce TOPIC",
    "L": "kafkaclient topics describe",
}
_NO_NUMBER = re.compile(r"Input should be a valid (integer|number), unable to parse")
_LIKE = 0.75  # elect is not like delete


def explain_usage_error(error: Any) -> None:
    """Add to the error of an unknown command or option what it is called here."""
    option = getattr(error, "option_name", None)
    if isinstance(option, str) and hasattr(error, "possibilities"):  # the option is unknown
        name = option.lstrip("-")
        if usage := _without_dashes(error.ctx, name):
            error.message += f". It is given without dashes: {usage}"
            error.possibilities = None
        elif here := _OPTIONS.get(name):
            error.message += f". Here: {here}"
            error.possibilities = None
    elif number := _NO_NUMBER.search(str(error.message)):
        error.message = f"give a {'whole number' if number[1] == 'integer' else 'number'}"
    elif found := re.match(r"No such command (['\"])(.*?)\1\.", str(error.message)):
        error.message = _no_such_command(error.ctx, found[2])


def _no_such_command(ctx: Any, name: str) -> str:
    """The message of the error about a command that the group of ``ctx`` does not have."""
    message = f"No such command {name!r}."
    if name in _ELSEWHERE:
        return f"{message} For ACLs, users and quotas of clients use kafka-acls and kafka-configs."
    script = f"kafka-{name.removeprefix('kafka-').removesuffix('.sh')}"
    path = [*ctx.command_path.split()[1:], name]
    known = ctx.command.list_commands(ctx)
    near = [each for each in known if each.startswith(name)]
    meant = {"ls": "list", "rm": "delete"}.get(name, name)
    near = near or get_close_matches(meant, known, 1, _LIKE)
    here = _COMMANDS.get(" ".join(path)) or _SCRIPTS.get(script) or next(iter(near), None)
    return f"{message} Did you mean '{here}'?" if here else message


def _without_dashes(ctx: Any, name: str) -> str | None:
    """The usage that an option of Kafka's scripts stands for, such as ``topics --list``."""
    if isinstance(ctx.command, TyperGroup):
        command = ctx.command.get_command(ctx, name)
        path = f"{ctx.command_path} {name}"
    else:
        command = ctx.command if name in _NAMES else None
        path = ctx.command_path
    return None if command is None else " ".join([path, *command.collect_usage_pieces(ctx)])
