"""The results of the campaign as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.experiment import REPORT
from experiments.machine import machine_sentence
from experiments.streams_chaos.report import gap_figures
from kafkaclient.pages import cell, filled, row, verdict, write_page

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.consumer_chaos.results import Campaign, Results

__all__ = ["sentence", "write_report"]


def write_report(folder: Path, results: Results) -> None:
    """Write ``report.html`` into the folder."""
    campaign, plan = results.campaign, results.plan
    assert campaign is not None
    lines = [sentence(campaign), *campaign.verdict.examples, *campaign.ended]
    write_page(
        folder / REPORT,
        title="consumer chaos",
        body=filled(
            "experiments.consumer_chaos",
            "report.html",
            lead=(
                f"{plan['members']} members of a group (group.protocol={plan['protocol']}) consume "
                f"{plan['rate']:g} records a second from {plan['topics']} topics on "
                f"{plan['brokers']} brokers, for {plan['seconds']:g} s under faults. "
                f"session.timeout.ms={plan['session_timeout_ms']}, "
                f"auto.commit.interval.ms={plan['commit_interval_ms']}, seed {plan['seed']}."
            ),
            verdict="".join(map(verdict, lines)),
            rows="\n".join(
                row(each.kind, [*map(cell, gap_figures(each))]) for each in campaign.gaps
            ),
        ),
        figures={},
        machine=machine_sentence(results.machine) if results.machine else "",
    )


def sentence(campaign: Campaign) -> str:
    """The campaign in a sentence."""
    found = campaign.verdict
    return (
        f"{campaign.records:,} records under {len(campaign.struck)} faults: {found.lost} lost, "
        f"{found.skipped} skipped, {found.reordered} reordered, {found.unexpected} unexpected, "
        f"{found.early_commits} commits too early, {found.shared} taken by two members at once, "
        f"{found.repeated_though_committed} repeated though committed; {found.repeated:,} repeated "
        f"behind a commit that was missing, at {found.repeating_stints} of {found.stints} "
        f"assignments; {found.zombie} taken by a member out of its session, "
        f"{found.deleted_unread} deleted unread; longest gap {campaign.longest_gap_s:.1f} s; "
        f"{len(campaign.ended)} members ended by themselves"
    )
