"""Login to Amazon MSK with IAM: ``MskIamTokenProvider`` (extra ``aws``).

The tokens are presigned URLs of aws-msk-iam-sasl-signer-python, Amazon's own library.
"""

from __future__ import annotations

import os
import re
from copy import copy
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from kafkaclient.errors import AuthenticationError, BrokerConnectionError, ConfigError
from kafkaclient.net.off_loop import OffLoop
from kafkaclient.net.tokens import Token
from kafkaclient.topic_names import several

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["MskIamTokenProvider"]

# b-1.example.a1b2c3.c4.kafka.eu-west-1.amazonaws.com, boot-x.c1.kafka-serverless.eu-west-1...
_MSK_HOST = re.compile(r".*\.kafka(?:-serverless)?\.([a-z]{2}(?:-[a-z]+)+-\d+)\.amazonaws\.com.*")
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")
_SESSION_NAME = "kafkaclient"


class MskIamTokenProvider:
    """A :class:`~kafkaclient.TokenProvider` for Amazon MSK.

    All arguments are optional:

    - ``region``: the region of the cluster. None: the region in the brokers' host names, else the
      environment variable AWS_REGION or AWS_DEFAULT_REGION.
    - ``profile``: a profile of the AWS configuration files. None: the default credentials chain of
      botocore (environment, profile, web identity, container, instance).
    - ``role_arn``: an IAM role to assume with these credentials, once for each token.
      ``role_session_name``, ``role_external_id`` and ``sts_region`` (None: the region) go with it.
    - ``credentials_provider``: your own ``botocore.credentials.CredentialProvider``, instead of
      ``profile`` and ``role_arn``.

    A token is valid for 15 minutes, and a client requests the next token after 12 minutes. Each
    request loads the credentials again, in a thread. The provider may be pickled, shared by several
    clients, and used on several event loops.

    Raises :class:`~kafkaclient.errors.ConfigError` for arguments that conflict, and if the extra
    ``aws`` is not installed.
    """

    def __init__(
        self,
        region: str | None = None,
        *,
        profile: str | None = None,
        role_arn: str | None = None,
        role_session_name: str | None = None,
        role_external_id: str | None = None,
        sts_region: str | None = None,
        credentials_provider: Any = None,
    ) -> None:
        if find_spec("aws_msk_iam_sasl_signer") is None:
            raise ConfigError(
                "MskIamTokenProvider needs aws-msk-iam-sasl-signer-python: "
                'pip install "kafkaclient[aws]"'
            )
        if credentials_provider is not None and (profile or role_arn):
            raise ConfigError("credentials_provider replaces profile and role_arn: give one")
        for name, value in (
            ("role_session_name", role_session_name),
            ("role_external_id", role_external_id),
            ("sts_region", sts_region),
        ):
            if value and not role_arn:
                raise ConfigError(f"{name} has no effect without role_arn")
        self.region = region
        self._profile = profile or None
        self._role_arn = role_arn
        self._role_session_name = role_session_name
        self._role_external_id = role_external_id
        self._sts_region = sts_region
        self._credentials_provider = credentials_provider
        self._off_loop: OffLoop[Token] = OffLoop()

    def __repr__(self) -> str:
        return f"<MskIamTokenProvider region={self.region}>"

    def for_brokers(self, host_names: Iterable[str]) -> MskIamTokenProvider:
        """This provider, or one for the region of these brokers if no region was given.

        Raises :class:`~kafkaclient.errors.ConfigError` if no source has the region.
        """
        if self.region:
            return self
        hosts = several(host_names, "host_names")
        names = (host.lower().removesuffix(".") for host in hosts)
        regions = {match[1] for name in names if (match := _MSK_HOST.fullmatch(name))}
        if len(regions) > 1:
            raise ConfigError(
                f"the bootstrap servers are in several regions ({', '.join(sorted(regions))})"
            )
        region = next(iter(regions), None) or next(
            (value for name in _REGION_VARIABLES if (value := os.environ.get(name))), None
        )
        if region is None:
            raise ConfigError(
                f"the names of the bootstrap servers ({', '.join(hosts)}) do not show the AWS "
                "region: give MskIamTokenProvider a region, or set AWS_REGION"
            )
        provider = copy(self)
        provider.region = region
        provider._off_loop = OffLoop()  # tokens are for one region
        return provider

    async def token(self) -> Token:
        """A new token.

        Raises AuthenticationError if there are no credentials or AWS refuses them, and
        BrokerConnectionError, which the client retries, if a retry may help.
        """
        return await self._off_loop.run(self._sign)

    def _sign(self) -> Token:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - takes 0.3 s
        from botocore.credentials import CredentialProvider, Credentials  # noqa: PLC0415
        from botocore.exceptions import (  # noqa: PLC0415
            BotoCoreError,
            ClientError,
            NoCredentialsError,
        )

        load = self._credentials

        class Loader(CredentialProvider):  # type: ignore[misc]  # botocore has no types
            def load(self) -> Credentials:
                if (credentials := load()) is None:
                    raise NoCredentialsError
                # Both keys and the session token of one moment: refreshable credentials may be
                # refreshed while the signer reads them one by one.
                return Credentials(*credentials.get_frozen_credentials()[:3])

        if not self.region:
            raise ConfigError("MskIamTokenProvider has no region: give it one")
        try:
            value, expires_ms = MSKAuthTokenProvider.generate_auth_token_from_credentials_provider(
                self.region, Loader()
            )
        except (BotoCoreError, ClientError, ValueError) as error:
            kind = AuthenticationError if _is_refusal(error) else BrokerConnectionError
            raise kind(f"no token for Amazon MSK: {type(error).__name__}: {error}") from error
        return Token(value, expires_ms / 1000)

    def _credentials(self) -> Any:
        """The credentials to sign with; None if there are none."""
        import botocore.session  # noqa: PLC0415
        from botocore.credentials import Credentials  # noqa: PLC0415

        if self._credentials_provider is not None:
            return self._credentials_provider.load()
        session = botocore.session.Session(profile=self._profile)
        if self._role_arn is None:
            return session.get_credentials()
        more = {"ExternalId": self._role_external_id} if self._role_external_id else {}
        client = session.create_client("sts", region_name=self._sts_region or self.region)
        try:
            role = client.assume_role(
                RoleArn=self._role_arn,
                RoleSessionName=self._role_session_name or _SESSION_NAME,
                **more,
            )["Credentials"]
        finally:
            client.close()
        return Credentials(role["AccessKeyId"], role["SecretAccessKey"], role["SessionToken"])


def _is_refusal(error: Exception) -> bool:
    """Whether another request would fail in the same way."""
    from botocore.exceptions import (  # noqa: PLC0415
        ClientError,
        NoCredentialsError,
        PartialCredentialsError,
        ProfileNotFound,
    )

    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        throttled = "Throttl" in error.response.get("Error", {}).get("Code", "")
        return 400 <= status < 500 and status != 429 and not throttled
    permanent = (NoCredentialsError, PartialCredentialsError, ProfileNotFound, ValueError)
    return isinstance(error, permanent)
