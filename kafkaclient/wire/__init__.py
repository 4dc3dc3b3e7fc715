"""Bytes to values and back: no asyncio, no sockets, no clocks."""
