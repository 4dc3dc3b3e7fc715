"""``kafkaclient profiles``: the named connections of this user."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from kafkaclient.cli.connection import PROFILE_VARIABLE, AsJson, described
from kafkaclient.cli.output import print_json, print_table, run_blocking
from kafkaclient.cli.profile_file import BOOTSTRAP, profiles_file, read_profiles

if TYPE_CHECKING:
    from kafkaclient.cli.profile_file import Profile

# Only these options are shown: others may be secrets.
_SHOWN = {"bootstrap": BOOTSTRAP, "security": "security.protocol", "login": "sasl.mechanism"}


@described
def profiles(*, as_json: AsJson = False) -> None:
    """List the profiles: named connections, for `--profile NAME` and `KAFKACLIENT_PROFILE`.

    Write them into the file that this command names, one table for each profile. A table has
    client options under Kafka's names. `command-config` names a properties file with more of them,
    for example with the secrets. `timeout` is that of `--timeout`:

        [prod]
        bootstrap.servers = "broker1:9093,broker2:9093"
        command-config = "prod.properties"
        timeout = 20

    Passwords and other options are not shown.
    """
    run_blocking(partial(_list, as_json))


def _list(as_json: bool) -> None:
    found = {name: profile.checked() for name, profile in read_profiles().items()}
    if as_json:
        print_json({"file": str(profiles_file()), "profiles": [_row(p) for p in found.values()]})
        return
    if not found:
        typer.echo(f"there are no profiles in {profiles_file()}")
        return
    used = os.environ.get(PROFILE_VARIABLE)
    rows = [_row(profile) for profile in found.values()]
    print_table(
        ("profile", *_SHOWN, "command-config", "timeout"),
        (
            [f"{row['profile']} (in use)" if row["profile"] == used else row["profile"]]
            + ["" if row[name] is None else row[name] for name in list(row)[1:]]
            for row in rows
        ),
        title=str(profiles_file()),
    )


def _row(profile: Profile) -> dict[str, Any]:
    return {
        "profile": profile.name,
        **{name: profile.options.get(option) for name, option in _SHOWN.items()},
        "command_config": None if profile.file is None else str(profile.file),
        "timeout_s": profile.timeout_s,
    }
