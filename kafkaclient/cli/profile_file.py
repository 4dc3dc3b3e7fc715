"""Profiles: named connections in ``profiles.toml`` of the user's configuration directory."""

from __future__ import annotations

import os
import re
import tomllib
from copy import copy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import typer

from kafkaclient.config.consumer import ConsumerConfig
from kafkaclient.config.options import read_options
from kafkaclient.config.reader import AdminConfig
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kafkaclient.config.options import Option


# --- Client options as Kafka's tools take them: ``.properties`` files -----------------------------

BOOTSTRAP = "bootstrap.servers"
REGISTRY = "schema.registry."
_CLASSES = {f"{of}.{what}" for of in ("key", "value") for what in ("serializer", "deserializer")}
_VARIABLE = re.compile(r"\$\{env:([^{}$]*)(\}?)")


def is_left_out(name: str) -> bool:
    """Whether no client has the option, or it names a Java class, which has no use here: files for
    Java's tools may have it."""
    return name.startswith((REGISTRY, "config.providers")) or name in _CLASSES


def from_environment(options: Mapping[str, str], where: str) -> dict[str, str]:
    """The options with the values of environment variables in place of ``${env:NAME}``, as by
    Java's EnvVarConfigProvider.

    Raises ConfigError, which begins with ``where`` and shows no value of a variable: for a variable
    that is not set, and for an option with a variable that no client has or takes."""
    if options.get("config.providers", "env") != "env":
        raise ConfigError(f"{where}config.providers: only env is known here, for ${{env:NAME}}")

    def value(match: re.Match[str]) -> str:
        if not (match[1] and match[2]):
            raise ConfigError(f"{where}{option}: a variable is given as ${{env:NAME}}")
        if (found := os.environ.get(match[1])) is None:
            raise ConfigError(f"{where}{option}: the environment variable {match[1]} is not set")
        return found

    found = {}
    for option, text in options.items():
        found[option] = _VARIABLE.sub(value, text)
    if replaced := {name: found[name] for name in found if _VARIABLE.search(options[name])}:
        _check(replaced, where, hide=True)
    return found


def read_properties(path: Path) -> dict[str, str]:
    """The options in a Java properties file. Raises :class:`ConfigError` when unreadable."""
    import javaproperties

    try:
        return javaproperties.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # not UTF-8, or an escape sequence that Java refuses
        raise ConfigError(f"cannot read the options in {path}: {error}") from error


def options_in(path: Path) -> dict[str, str]:
    """As :func:`read_properties`. Raises ConfigError, which names the file, also for an option that
    no client has, and for a value that is not accepted."""
    found = read_properties(path)
    _check_constant(found, f"{path}: ")
    return found


def _check_constant(options: Mapping[str, str], where: str) -> None:
    """Check what has no variable; :func:`from_environment` checks the others when they are used."""
    _check({name: text for name, text in options.items() if not _VARIABLE.search(text)}, where)


def _check(options: Mapping[str, str], where: str, *, hide: bool = False) -> None:
    """``hide``: show no value, as of secrets."""
    known = {**ConsumerConfig.OPTIONS, **AdminConfig.OPTIONS}
    if hide:
        known = {name: _hidden(option) for name, option in known.items()}
    own = {name: text for name, text in options.items() if not is_left_out(name)}
    try:
        read_options(known, (own,))
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from error


def _hidden(option: Option) -> Option:
    hidden = copy(option)
    hidden.secret = True
    return hidden


def pairs(words: Iterable[str] | None, flag: str, *, strip: bool = False) -> dict[str, str]:
    """The ``NAME=VALUE`` words of a flag. Raises :class:`ConfigError` for any other word.

    ``strip``: remove spaces around names and values.
    """
    return dict(pair(word, flag, strip=strip) for word in words or ())


def pair(word: str, flag: str, *, strip: bool = False) -> tuple[str, str]:
    """One word, as :func:`pairs`."""
    name, equals, value = word.partition("=")
    if strip:
        name, value = name.strip(), value.strip()
    if not (name and equals):
        raise ConfigError(f"{flag} takes NAME=VALUE, not {word!r}")
    return name, value


def comma_pairs(words: Iterable[str] | None, flag: str) -> dict[str, str]:
    """As :func:`pairs`, for flags of Kafka's tools that take several pairs, joined by commas.

    A value that has commas is given in square brackets: ``a=[1,2],b=3``. Raises
    :class:`ConfigError` also for a name that is given twice.
    """
    found: dict[str, str] = {}
    for part in (part for word in words or () for part in _split(word)):
        if found and "=" not in part:
            last = list(found)[-1]
            raise ConfigError(
                f"{flag} takes NAME=VALUE, not {part!r}. A value with commas is given in square "
                f"brackets: {last}=[{found[last]},{part}]"
            )
        [(name, value)] = pairs([part], flag, strip=True).items()
        if name in found:
            raise ConfigError(f"{flag} {name} is given twice")
        found[name] = value[1:-1] if value[:1] == "[" and value[-1:] == "]" else value
    return found


def _split(text: str) -> list[str]:
    """The parts between commas that are outside of square brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part for part in parts if part.strip()]


# --- Profiles: named connections in ``profiles.toml`` of the user's configuration -----------------

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

    @property
    def prefix(self) -> str:
        """The beginning of error messages about an option of the profile."""
        return f"{self.where}: profile {self.name!r}: "

    def checked(self) -> Self:
        """The profile. Raises ConfigError if it has an unknown option."""
        _check_constant(self.options, self.prefix)
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
