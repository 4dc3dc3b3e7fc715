"""``kafkaclient profiles``, and the file of named connections that it shows and edits."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer

from kafkaclient.cli.options import BOOTSTRAP, PROFILE_VARIABLE, AsJson, described
from kafkaclient.cli.output import print_json, print_table, run_blocking
from kafkaclient.config.options import read_options
from kafkaclient.config.reader import AdminConfig
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


# --- Profiles: named connections in ``profiles.toml`` of the user's configuration directory. ---

_FILE = "command-config"
_TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True, repr=False)  # an option may be a secret
class Profile:
    """One connection."""

    name: str
    options: Mapping[str, str]
    """Client options under Kafka's names."""
    file: Path | None
    """A properties file with more options."""
    timeout_s: float | None
    where: str
    """The profile's file and line."""

    def checked(self) -> Self:
        """The profile. Raises ConfigError if it has an unknown option."""
        try:
            read_options(AdminConfig.OPTIONS, (self.options,))
        except ConfigError as error:
            raise ConfigError(f"{self.where}: profile {self.name!r}: {error}") from error
        return self


def profiles_file() -> Path:
    """``~/.config/kafkaclient/profiles.toml`` on Linux, or below ``$XDG_CONFIG_HOME``; the
    directory for an application's configuration on macOS and Windows."""
    return Path(typer.get_app_dir("kafkaclient")) / "profiles.toml"


def read_profiles() -> dict[str, Profile]:
    """All profiles, in the order of the file; none if there is no file. Raises ConfigError, which
    names the file and the line."""
    path = profiles_file()
    try:
        text = path.read_text("utf-8")
        tables = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"cannot read the profiles in {path}: {error}") from error
    found = {}
    for name, table in tables.items():
        where = f"{path}{_line(text, name)}"
        try:
            found[name] = _profile(name, table, where)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from error
    return found


def profile_named(name: str) -> Profile:
    """Raises ConfigError if there is no such profile, or if it has an unknown option."""
    found = read_profiles()
    if name in found:
        return found[name].checked()
    path = profiles_file()
    if not found:
        raise ConfigError(f"there is no profile {name!r}: there are no profiles in {path}")
    near = get_close_matches(name, found, 1)
    advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(found)}"
    raise ConfigError(f"there is no profile {name!r} in {path}; {advice}")


def profile_names() -> list[str]:
    """The names for a shell's completion; none if the file cannot be read."""
    try:
        return list(read_profiles())
    except ConfigError:
        return []


def _profile(name: str, table: object, where: str) -> Profile:
    if not isinstance(table, dict):
        raise ValueError(f"a profile is a table, as in [{name}]")  # noqa: TRY004 - see read_profiles
    options: dict[str, Any] = dict(_flat(table))
    file, timeout = options.pop(_FILE, None), options.pop(_TIMEOUT, None)
    if file is not None and not isinstance(file, str):
        raise ValueError(f"{_FILE} of profile {name!r} is the name of a file")
    if timeout is not None and not (_is_number(timeout) and timeout > 0):
        raise ValueError(f"{_TIMEOUT} of profile {name!r} is a number of seconds above 0")
    return Profile(
        name,
        {key: _text(name, key, value) for key, value in options.items()},
        None if file is None else profiles_file().parent / Path(file).expanduser(),
        timeout,
        where,
    )


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values by their dotted names: in TOML, ``bootstrap.servers`` is a table in a table."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _text(profile: str, key: str, value: object) -> str:
    """The value as in a properties file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) or _is_number(value):
        return str(value)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    raise ValueError(
        f"{key} of profile {profile!r} is a text, a number, a boolean or a list of texts"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _line(text: str, name: str) -> str:
    """Where the profile begins."""
    begins = re.compile(rf"\s*\[?\s*[\"']?{re.escape(name)}[\"']?\s*[\].=]")
    lines = text.splitlines()
    found = next((n for n, line in enumerate(lines, 1) if begins.match(line)), None)
    return "" if found is None else f", line {found}"


# --- ``kafkaclient profiles``: the named connections of this user. ---

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
