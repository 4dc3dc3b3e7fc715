"""What the caller holds: a light handle per record, and one receipt per batch behind it.

A record costs no asyncio future. Its :class:`Delivery` points at the :class:`Receipt` of the batch
it went into; whoever awaits it is woken together with all that wait for the batch. Compiled
(``_delivery.pyx``), or its pure-Python twin (``_delivery_py.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaclient.twins import load_twin

if TYPE_CHECKING:
    from kafkaclient.producer._delivery_py import Callback, Delivery, Receipt
else:
    _twin, _ = load_twin("kafkaclient.producer._delivery")
    Callback, Delivery, Receipt = _twin.Callback, _twin.Delivery, _twin.Receipt

__all__ = ["Callback", "Delivery", "Receipt"]
