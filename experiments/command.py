"""What the commands of all experiments share: options, the run itself, tables, exit status."""

from __future__ import annotations

import inspect
import sys
from dataclasses import MISSING, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from rich.table import Table

from experiments.experiment import REPORT, SUMMARY, BaseExperiment, BaseResults
from experiments.options import Listed, check_libraries
from experiments.watcher import ConsoleWatcher
from kafkaclient.cli.output import FAILED, WIDE, run_command, stderr_console, stdout_console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import Console

__all__ = [
    "AsJson",
    "Out",
    "new_table",
    "of_plan",
    "print_files",
    "print_problems",
    "run_experiment",
]

Out = Annotated[Path, typer.Option(help="Folder for summary.json and report.html.")]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print summary.json on stdout instead of tables.")
]


P = TypeVar("P", bound=Any)
R = TypeVar("R", bound=BaseResults)


def of_plan(
    plan: type[Any], **defaults: Any
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a plan's fields, in the place of its argument ``plan``.

    The command gets a function instead, which returns the plan of the user's values; its arguments
    are fields without option. A field that is declared as ``Annotated[TYPE, "help text"]``, or with
    a ``typer.Option`` or a :class:`Listed` in the text's place, has an option of its name, without
    ``_s`` at the end. ``defaults`` replace the fields' defaults, as the user would write them.
    """
    listed: dict[str, Listed] = {}
    options: dict[str, inspect.Parameter] = {}
    names: dict[str, str] = {}
    hints = get_type_hints(plan, include_extras=True)
    for field in fields(plan):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            continue
        kind: Any
        option: Any
        default: Any = field.default
        kind, option = get_args(hint)
        if isinstance(option, Listed):
            listed[field.name] = option
            kind, option, default = str, option.help, option.default or _words(default)
        if isinstance(option, str):
            option = typer.Option(help=option)
        assert default is not MISSING, f"{field.name} has no default"
        name = field.name.removesuffix("_s")
        names[name] = field.name
        options[field.name] = inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(field.name, default),
            annotation=Annotated[kind, option],
        )

    def give(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            wanted = {names[name]: values.pop(name) for name in names}

            def make(**more: Any) -> Any:
                read = {name: each.parse(wanted[name]) for name, each in listed.items()}
                return plan(**wanted | read | more)

            command(plan=make, **values)

        signature = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            parameters += options.values() if parameter.name == "plan" else [parameter]
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return run

    return give


def _words(default: Any) -> str:
    return ",".join(map(str, default)) or "none"


def run_experiment(
    plan: Callable[[], P],
    experiment: type[BaseExperiment[P, R]],
    write_report: Callable[[Path, R], None],
    show: Callable[[Console, Path, R], None],
    out: Path,
    *,
    as_json: bool,
) -> R:
    """The results of the experiment ``experiment(plan(), out, watcher)``, after its run.

    Writes the report, then calls ``show(console, out, results)``, or prints ``summary.json`` with
    ``as_json``. After Ctrl-C and after an error it does the same, if there are results. Ends the
    process as :func:`~kafkaclient.cli.output.run_command` does, and with status 1 if the results
    are not clean.
    """
    made: list[BaseExperiment[P, R]] = []

    async def main() -> None:
        check_libraries()
        check_libraries(experiment.libraries)
        made.append(experiment(plan(), out, ConsoleWatcher(stderr_console())))
        await made[0].run()

    try:
        run_command(main())
    finally:
        if made and made[0].results.has_runs:
            write_report(out, made[0].results)
            if as_json:
                sys.stdout.write((out / SUMMARY).read_text("utf-8"))
            else:
                show(stdout_console(WIDE), out, made[0].results)
    results = made[0].results
    if not results.is_clean:
        raise typer.Exit(FAILED)
    return results


def new_table(title: str | None, names: Iterable[str], figures: Iterable[str]) -> Table:
    """A table without rows; ``figures`` are the headings of the columns that are set right."""
    table = Table(title=title, title_style="bold", title_justify="left", box=None, pad_edge=False)
    for heading in names:
        table.add_column(heading, no_wrap=True)
    for heading in figures:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def print_problems(console: Console, problems: Iterable[str], style: str = "red") -> None:
    """Print a line for each problem."""
    for problem in problems:
        console.print(problem, style=style, markup=False, soft_wrap=True)


def print_files(console: Console, out: Path, before: str = "") -> None:
    """Print where the report and the summary are, behind the text ``before``."""
    console.print(f"{before}{out / REPORT}, {out / SUMMARY}", style="dim", soft_wrap=True)
