"""The results of the campaign as one HTML file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from experiments.experiment import REPORT
from experiments.machine import machine_sentence
from kafkaclient.pages import cell, filled, number, row, verdict, write_page

if TYPE_CHECKING:
    from pathlib import Path

    from experiments.streams_chaos.gaps import KindGaps
    from experiments.streams_chaos.results import Campaign, Results

__all__ = ["gap_figures", "sentence", "write_report"]


def write_report(folder: Path, results: Results) -> None:
    """Write ``report.html`` into the folder."""
    campaign, plan = results.campaign, results.plan
    assert campaign is not None
    write_page(
        folder / REPORT,
        title="streams chaos",
        body=filled(
            "experiments.streams_chaos",
            "report.html",
            lead=(
                f"{plan['instances']} instances count {plan['rate']:g} records a second "
                f"({plan['guarantee']}), in {plan['tasks']} tasks, on {plan['brokers']} brokers, "
                f"for {plan['seconds']:g} s under faults. Another client's consumer compares every "
                f"count. session.timeout.ms={plan['session_timeout_ms']}, "
                f"num.standby.replicas={plan['num_standby_replicas']}, seed {plan['seed']}."
            ),
            verdict="".join(
                map(verdict, [sentence(campaign), *campaign.examples, *campaign.ended])
            ),
            rows="\n".join(
                row(each.kind, [*map(cell, gap_figures(each))]) for each in campaign.gaps
            ),
        ),
        figures={},
        machine=machine_sentence(results.machine) if results.machine else "",
    )


def sentence(campaign: Campaign) -> str:
    """The campaign in a sentence."""
    exact = "every count exact"
    if campaign.wrong:
        exact = f"{campaign.wrong:,} counts wrong"
    elif campaign.repeated:
        exact = f"none lost, {campaign.repeated:,} counted again"
    return (
        f"{campaign.records:,} records, {exact}; {len(campaign.struck)} faults, "
        f"{campaign.rebalances} rebalances, {campaign.evictions} evictions; longest gap "
        f"{campaign.longest_gap_s:.1f} s; {len(campaign.ended)} instances ended by themselves"
    )


def gap_figures(found: KindGaps) -> tuple[str, str, str]:
    """How often, the longest gap, and the longest gap alone, for a table."""
    return (
        str(found.faults) if found.faults else "-",
        number(found.longest_gap_s, 2),
        number(found.longest_gap_alone_s, 2),
    )
