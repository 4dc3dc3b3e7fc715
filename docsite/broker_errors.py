"""The page of Kafka's error codes, written from kafkaclient/broker_errors.py and the table of what
the producer does."""

from __future__ import annotations

from docsite.tables import table
from kafkaclient.broker_errors import BROKER_ERRORS, broker_error
from kafkaclient.producer.sender.responses import AMBIGUOUS_CODES, ErrorAction, action_for

_HEAD = """\
# Broker errors

A broker refuses a request with one of Kafka's error codes. Each code has an exception of
`kafkaclient.errors`, with `code` and `name`.

- **retriable**: Kafka's word on whether the same request may succeed later.
- **a batch**: what the producer does when a broker returns the code for a partition's batch.
- **in the log**: whether a batch that failed with this code may be in the log all the same
  (`maybe_written`).

[Errors](errors.md) says what to do about each exception.
"""
_ACTIONS = {
    ErrorAction.DONE: "done: an earlier attempt wrote it",
    ErrorAction.RETRY: "sent again",
    ErrorAction.SPLIT: "split and sent again; a single record fails",
    ErrorAction.RESEQUENCE: "sent again, with a new epoch",
    ErrorAction.FAIL: "fails",
    ErrorAction.FATAL: "the producer ends",
}


def page() -> str:
    """The Markdown text."""
    rows = (
        (
            code,
            f"`{BROKER_ERRORS[code][0]}`",
            f"[`{kind}`](api/errors.md#kafkaclient.errors.{kind})",
            "yes" if broker_error(code).retriable else "no",
            _ACTIONS[action_for(code)],
            "maybe" if code in AMBIGUOUS_CODES else "no",
            BROKER_ERRORS[code][-1],
        )
        for code in sorted(BROKER_ERRORS)
        for kind in [type(broker_error(code)).__name__]
    )
    head = ("code", "name", "exception", "retriable", "a batch", "in the log", "meaning")
    return _HEAD + "\n" + table(head, rows)
