"""aiokafka's producer API on this package's producer: a drop-in for ``AIOKafkaProducer``.

One changed import, ``from kafkaclient.aiokafka import AIOKafkaProducer``, or one call,
:func:`install`, for libraries that import aiokafka themselves. Needs the extra ``aiokafka``.
docs/how-to/aiokafka.md describes both.
"""

from __future__ import annotations

try:
    import aiokafka as _aiokafka  # noqa: F401 - only to say what is missing
except ImportError as error:
    raise ImportError(
        f"kafkaclient.aiokafka needs aiokafka ({error}): pip install 'kafkaclient[aiokafka]'"
    ) from error

from kafkaclient.aiokafka.install import install, uninstall
from kafkaclient.aiokafka.producer import AIOKafkaProducer
from kafkaclient.aiokafka.structs import RecordMetadata, TopicPartition

__all__ = ["AIOKafkaProducer", "RecordMetadata", "TopicPartition", "install", "uninstall"]
