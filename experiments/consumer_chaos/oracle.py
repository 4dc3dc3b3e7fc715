"""What became of the records: compares what was acknowledged, processed and committed."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from experiments.consumer_chaos.load import Log

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from experiments.consumer_chaos.commit_log import Commit
    from experiments.consumer_chaos.member_log import Processed, Stint

__all__ = ["Verdict", "judge"]

_MOST_EXAMPLES = 40
_CLOCK_S = 0.002  # brokers give commits whole milliseconds
_VISIBLE_S = 1.0  # a commit is read back once all replicas have it


@dataclass(slots=True)
class Verdict:
    """Numbers of records, unless a field says otherwise."""

    processed: int = 0
    """With all repetitions."""
    lost: int = 0
    """Acknowledged, and never processed."""
    skipped: int = 0
    """A member began or went on behind a record that no member had finished."""
    reordered: int = 0
    """Processed after a later one, by a member that had the partition all the time."""
    unexpected: int = 0
    """Not what was acknowledged at that offset."""
    early_commits: int = 0
    """Commits (not records) behind a record that no member had finished."""
    repeated_though_committed: int = 0
    shared: int = 0
    """Taken while another member had got the partition, by a member that was in its session."""
    repeated: int = 0
    """Processed again, behind the last commit of the member before: it died, was cut off, or its
    commit was refused. Or by a member that is out of its session, in a topic that is created again
    while the member has it."""
    repeating_stints: int = 0
    """How many times a member began with records that were processed before."""
    zombie: int = 0
    """Taken while another member had got the partition, by a member that was out of its session."""
    deleted_unread: int = 0
    """Deleted with their topic before a member had processed them."""
    stints: int = 0
    """How many times a member got a partition."""
    examples: list[str] = field(default_factory=list)
    """The first errors, in words."""

    @property
    def errors(self) -> int:
        return (
            self.lost
            + self.skipped
            + self.reordered
            + self.unexpected
            + self.early_commits
            + self.repeated_though_committed
            + self.shared
        )

    def note(self, example: str) -> None:
        if len(self.examples) < _MOST_EXAMPLES:
            self.examples.append(example)


class _Run:
    """Records of one life of a topic that a member processed in one stint."""

    def __init__(self, stint: Stint, records: Sequence[Processed], *, is_first: bool) -> None:
        self.stint = stint
        self.records = records
        self.is_first = is_first
        """Whether the member got the partition in this life of the topic, not in an earlier one."""
        self.began = stint.began if is_first else records[0].taken

    def __str__(self) -> str:
        stint = self.stint
        return f"{stint.member} (got it at {self.began:.3f}, {stint.how} at {stint.ended:.3f})"


def judge(
    acked: Mapping[Log, Mapping[int, int]],
    lives: Mapping[str, int],
    stints: Sequence[Stint],
    commits: Iterable[Commit],
) -> Verdict:
    """``acked``: the numbers of acknowledged records by offset; ``lives``: the last life of each
    topic."""
    verdict = Verdict(stints=len(stints))
    runs: dict[Log, list[_Run]] = defaultdict(list)
    for stint in stints:
        for run in _split(stint):
            runs[Log(stint.topic, run.records[0].life, stint.partition)].append(run)
    by_log: dict[tuple[str, int], list[Commit]] = defaultdict(list)
    for commit in commits:
        by_log[commit.topic, commit.partition].append(commit)
    for log in acked.keys() | runs.keys():
        partition = _Partition(log, acked.get(log, {}), runs[log], verdict)
        begins, ends = partition.times(runs[log._replace(life=log.life + 1)])
        found = [c for c in by_log[log.topic, log.partition] if begins <= c.at < ends]
        partition.judge(found, is_last=log.life == lives[log.topic])
    return verdict


def _split(stint: Stint) -> list[_Run]:
    found: list[_Run] = []
    begins = 0
    for place in range(1, len(stint.records) + 1):
        if place == len(stint.records) or stint.records[place].life != stint.records[begins].life:
            records = stint.records[begins:place]
            found.append(_Run(stint, records, is_first=begins == 0))
            begins = place
    return found


class _Partition:
    """One life of one partition."""

    def __init__(
        self, log: Log, acked: Mapping[int, int], runs: list[_Run], verdict: Verdict
    ) -> None:
        self._log = log
        self._acked = acked
        self._runs = sorted(runs, key=lambda run: run.records[0].taken)
        self._verdict = verdict
        self._first: dict[int, float] = {}
        """Offset -> when a member first finished it."""
        for run in runs:
            for each in run.records:
                at = self._first.get(each.offset, float("inf"))
                self._first[each.offset] = min(at, each.finished)

    def times(self, next_life: Sequence[_Run]) -> tuple[float, float]:
        """When this life may have commits: from its first record to the first of the next life."""
        begins = min(self._first.values(), default=float("inf"))
        ends = min((run.records[0].taken for run in next_life), default=float("inf"))
        return begins, ends

    def judge(self, commits: Sequence[Commit], *, is_last: bool) -> None:
        verdict, first = self._verdict, self._first
        missing = sorted(self._acked.keys() - first.keys())
        if is_last and missing:
            verdict.lost += len(missing)
            verdict.note(f"{self._log}: never processed: {len(missing)}, from {missing[0]}")
        elif not is_last:
            verdict.deleted_unread += len(missing)
        self._finished_by = _Prefix(self._acked, first)
        self._follow()
        self._repetitions(commits)
        self._check_commits(commits)
        self._owners()

    def _follow(self) -> None:
        """Each run begins where everything before is finished, and goes on without a gap."""
        verdict, log = self._verdict, self._log
        for run in self._runs:
            expected: int | None = None
            for each in run.records:
                verdict.processed += 1
                if self._acked.get(each.offset) != each.number:
                    verdict.unexpected += 1
                    verdict.note(f"{log}: {each} by {run}: not what was acknowledged")
                left: list[int] = []
                if expected is None:
                    left = self._finished_by.unfinished(each.offset, each.taken)
                elif each.offset > expected:
                    left = [n for n in range(expected, each.offset) if n in self._acked]
                elif each.offset < expected:
                    verdict.reordered += 1
                    verdict.note(f"{log}: {run} went back from {expected} to {each}")
                if left:
                    verdict.skipped += len(left)
                    verdict.note(f"{log}: {run} went from {expected} to {each}, skipped {left[:3]}")
                expected = each.offset + 1

    def _repetitions(self, commits: Sequence[Commit]) -> None:
        verdict = self._verdict
        seen: set[int] = set()
        for run in self._runs:
            again = [each for each in run.records if each.offset in seen]
            seen.update(each.offset for each in run.records)
            if not again:
                continue
            verdict.repeating_stints += 1
            before = [each.offset for each in commits if each.at < run.began - _VISIBLE_S]
            committed = before[-1] if before else 0
            # A member that is out of its session cannot know that a topic that it had, and that is
            # created again, has another member.
            bad = [
                each.offset
                for each in again
                if each.offset < committed and (run.is_first or each.in_session)
            ]
            verdict.repeated += len(again) - len(bad)
            verdict.repeated_though_committed += len(bad)
            if bad:
                verdict.note(f"{self._log}: {run} repeats {len(bad)} from {bad[0]}; {committed=}")

    def _check_commits(self, commits: Sequence[Commit]) -> None:
        for commit in commits:
            left = self._finished_by.unfinished(commit.offset, commit.at + _CLOCK_S)
            if left:
                self._verdict.early_commits += 1
                self._verdict.note(f"{self._log}: {commit} with {left[:3]} unfinished")

    def _owners(self) -> None:
        """Records that a member takes while a member that came later has the partition."""
        verdict = self._verdict
        for run in self._runs:
            others = [
                each
                for each in self._runs
                if each.stint.member != run.stint.member and each.began > run.began
            ]
            if not others:
                continue
            for each in run.records:
                found = [o for o in others if o.began + _CLOCK_S < each.taken < o.stint.ended]
                if not found:
                    continue
                if each.in_session:
                    verdict.shared += 1
                    verdict.note(f"{self._log}: {run} takes {each}, but {found[0]} has it")
                else:
                    verdict.zombie += 1


class _Prefix:
    """By when all acknowledged records before an offset were finished."""

    def __init__(self, acked: Mapping[int, int], first: Mapping[int, float]) -> None:
        self._offsets = sorted(acked)
        self._first = first
        self._by: list[float] = [float("-inf")]
        for offset in self._offsets:
            self._by.append(max(self._by[-1], first.get(offset, float("inf"))))

    def unfinished(self, offset: int, at: float) -> list[int]:
        """The offsets before ``offset`` that were not finished ``at`` this time."""
        place = bisect_right(self._offsets, offset - 1)
        if self._by[place] <= at:
            return []
        never = float("inf")
        return [each for each in self._offsets[:place] if self._first.get(each, never) > at]
