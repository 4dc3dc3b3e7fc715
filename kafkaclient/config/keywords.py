"""The types of the clients' keyword arguments, which type checkers and editors know.

Made from the declarations of the options by ``make keywords``. Only type checkers import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict

from kafkaclient.types import Key_co, Key_contra, Value_co, Value_contra

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from os import PathLike

    from kafkaclient.consumer.deserializers import Deserializer
    from kafkaclient.hooks import Hooks
    from kafkaclient.net.tokens import Token, TokenProvider
    from kafkaclient.producer.batches.serializers import Serializer
    from kafkaclient.producer.partitioning.partitioners import Partitioner


class ClientKeywords(TypedDict, total=False):
    """The options of all clients."""

    bootstrap_servers: str | Iterable[str | tuple[str, int]]
    bootstrap_connect_timeout_ms: int
    client_id: str
    request_timeout_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    metadata_max_age_ms: int
    metadata_max_idle_ms: int
    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    metadata_recovery_rebootstrap_trigger_ms: int
    allow_auto_create_topics: bool
    max_block_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    security_protocol: str
    ssl_truststore_location: str | PathLike[str] | None
    ssl_ca_location: str | PathLike[str] | None
    ssl_cafile: str | PathLike[str] | None
    ssl_truststore_certificates: str | None
    ssl_ca_pem: str | None
    ssl_truststore_password: str | None
    ssl_truststore_type: str
    ssl_keystore_location: str | PathLike[str] | None
    ssl_certificate_location: str | PathLike[str] | None
    ssl_certfile: str | PathLike[str] | None
    ssl_key_location: str | PathLike[str] | None
    ssl_keyfile: str | PathLike[str] | None
    ssl_keystore_certificate_chain: str | None
    ssl_certificate_pem: str | None
    ssl_keystore_key: str | None
    ssl_key_pem: str | None
    ssl_keystore_password: str | None
    ssl_keystore_type: str
    ssl_key_password: str | None
    ssl_password: str | None
    ssl_endpoint_identification_algorithm: str
    ssl_endpoint_hostname: str | None
    ssl_enabled_protocols: str | Sequence[str]
    ssl_context: ssl.SSLContext | None
    sasl_mechanism: str | None
    sasl_mechanisms: str | None
    sasl_username: str | None
    sasl_plain_username: str | None
    sasl_password: str | None
    sasl_plain_password: str | None
    sasl_tokenauth: bool
    sasl_jaas_config: str | None
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str | None
    sasl_kerberos_keytab: str | PathLike[str] | None
    sasl_kerberos_principal: str | None
    sasl_kerberos_ticket_cache: str | None
    sasl_kerberos_ticket_renew_window_factor: float
    sasl_kerberos_min_time_before_relogin: int
    sasl_oauth_token_provider: TokenProvider | Callable[[], Awaitable[Token]] | str | None
    sasl_oauthbearer_extensions: Mapping[str, str] | str | None
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_client_secret: str | None
    sasl_oauthbearer_scope: str | None
    sasl_oauthbearer_assertion_file: str | PathLike[str] | None
    sasl_oauthbearer_jwt_retriever_class: Literal[
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "org.apache.kafka.common.security.oauthbearer.ClientCredentialsJwtRetriever",
        "org.apache.kafka.common.security.oauthbearer.JwtBearerJwtRetriever",
    ]
    https_ca_location: str | PathLike[str] | None
    https_ca_pem: str | None


class ProducerKeywords(ClientKeywords, total=False):
    """The options of ``Producer`` and ``SyncProducer``, without serializers."""

    max_in_flight_requests_per_connection: int
    linger_ms: float
    batch_size: int
    buffer_memory: int
    max_request_size: int
    acks: int | Literal["all"]
    enable_idempotence: bool
    delivery_timeout_ms: int
    retries: int
    transactional_id: str | None
    transaction_timeout_ms: int
    partitioner: (
        Literal["late", "kip794", "sticky", "uniform-sticky", "round-robin", "random"] | Partitioner
    )
    partitioner_share_floor: float
    partitioner_ignore_keys: bool
    adaptive_partitioning_enable: bool
    partitioner_adaptive_partitioning_enable: bool
    availability_timeout_ms: int
    partitioner_availability_timeout_ms: int
    partitioner_rack_aware: bool
    client_rack: str
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    compression_threads: int | None
    compression_gzip_level: int | None
    compression_lz4_level: int | None
    compression_zstd_level: int | None
    on_delivery: Callable[[Any], object] | None
    on_error: Callable[[Any], object] | None
    hooks: Hooks | Sequence[Hooks]
    metrics_sample_window_ms: int
    metrics_num_samples: int
    enable_metrics_push: bool
    telemetry: str | PathLike[str] | None
    telemetry_sample: float
    telemetry_file_bytes: int
    telemetry_file_ms: int | None
    telemetry_retention_ms: int


class SerializingKeywords(ProducerKeywords, Generic[Key_contra, Value_contra], total=False):
    """The options of ``Producer`` and ``SyncProducer``, with serializers."""

    key_serializer: Serializer[Key_contra] | Callable[[Key_contra], Any] | None
    value_serializer: Serializer[Value_contra] | Callable[[Value_contra], Any] | None


class ReaderKeywords(ClientKeywords, total=False):
    """The options of ``Reader``."""

    default_api_timeout_ms: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    check_crcs: bool
    client_rack: str


class ConsumerKeywords(ReaderKeywords, Generic[Key_co, Value_co], total=False):
    """The options of ``Consumer`` and ``SyncConsumer``."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["auto", "consumer", "classic"]
    group_remote_assignor: str | None
    partition_assignment_strategy: str | Sequence[str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    auto_offset_reset: str
    exclude_internal_topics: bool
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    key_deserializer: Deserializer[Key_co] | Callable[[bytes], Awaitable[Key_co] | Key_co] | None
    value_deserializer: (
        Deserializer[Value_co] | Callable[[bytes], Awaitable[Value_co] | Value_co] | None
    )
    on_error: Literal["fail", "skip"] | Callable[[Any, Any], object]
    hooks: Hooks | Sequence[Hooks]
    enable_metrics_push: bool


class AdminKeywords(ProducerKeywords, total=False):
    """The options of ``Admin``."""

    default_api_timeout_ms: int
