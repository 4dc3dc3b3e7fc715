"""A delivery as an asyncio future, for code that asks for ``asyncio.isfuture``.

``DeliveryFuture(delivery)`` is one small object beside the delivery. A subclass translates the
outcome: its ``_result`` and ``_error`` are called only when the outcome is read.

    class SendFuture(DeliveryFuture):          # interpreted, or compiled with cpdef in a .pxd
        __slots__ = ()

        def _result(self, metadata):           # RecordMetadata -> what result() and await return
            return ...

        def _error(self, error):               # KafkaError -> what result() and await raise
            return ...

``SendFuture(await producer.send(...))`` costs one allocation more than ``producer.send``.
"""

from __future__ import annotations
