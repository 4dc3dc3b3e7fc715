"""Makes the token provider that options name: by its path, or as Java's clients name the login of
Amazon MSK."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kafkaclient.config.jaas import MSK_IAM, login_module
from kafkaclient.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MSK_PROVIDER = "kafkaclient.aws:MskIamTokenProvider"

# The option of aws-msk-iam-auth's login module -> the argument of our provider.
_MSK_ARGUMENTS = {
    "awsProfileName": "profile",
    "awsRoleArn": "role_arn",
    "awsRoleSessionName": "role_session_name",
    "awsRoleExternalId": "role_external_id",
    "awsStsRegion": "sts_region",
}


def ready_provider(values: Mapping[str, Any]) -> Any:
    """The given provider, loaded if it was given by its path, and for the given brokers.

    A provider with a method ``for_brokers(host_names)`` is replaced by the result of this method.
    Raises ConfigError for a path that leads nowhere, and what these methods raise.
    """
    provider = values["sasl_oauth_token_provider"]
    if isinstance(provider, str):
        provider = _load(provider)
    for_brokers = getattr(provider, "for_brokers", None)
    if for_brokers is None:
        return provider
    return for_brokers(tuple(host for host, _ in values["bootstrap_servers"]))


def msk_provider(values: Mapping[str, Any]) -> Any:
    """The provider for ``sasl.mechanism=AWS_MSK_IAM``, with the options of the login module in
    ``sasl.jaas.config``. Raises ConfigError for other options."""
    arguments: dict[str, str] = {}
    if values["sasl_jaas_config"] is not None:
        _, options = login_module(values)
        for number, (word, text) in enumerate(options.items(), 1):
            if word not in _MSK_ARGUMENTS:
                raise ConfigError(
                    f"sasl.jaas.config: option {number} for {MSK_IAM} is none of those that "
                    f"kafkaclient knows: {', '.join(_MSK_ARGUMENTS)}"
                )
            arguments[_MSK_ARGUMENTS[word]] = text
    return _load(_MSK_PROVIDER, **arguments)


def _load(path: str, **arguments: str) -> Any:
    """The object at ``package.module:name``; a class is called with the arguments."""
    module_name, _, name = path.partition(":")
    try:
        found = getattr(import_module(module_name), name)
        provider = found(**arguments) if isinstance(found, type) else found
    except ConfigError:
        raise
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"sasl_oauth_token_provider={path} cannot be loaded: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(  # the text of a foreign error may have secrets
            f"sasl_oauth_token_provider={path} cannot be loaded: it raised {type(error).__name__}"
        ) from error
    if not callable(provider) and not callable(getattr(provider, "token", None)):
        raise ConfigError(
            f"sasl_oauth_token_provider={path} is a {type(provider).__name__}: it must be an async "
            "function () -> Token, or an object or class with such a method token"
        )
    return provider
