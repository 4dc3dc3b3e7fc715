"""Places orders: each with its record, in one transaction.

python examples/outbox/shop.py postgresql://localhost/shop orders --count 100
"""

from __future__ import annotations

import argparse
import asyncio
import json
from typing import Any

import asyncpg


async def place_order(connection: Any, topic: str, customer: str, item: int) -> int:
    """Both rows are written, or none."""
    async with connection.transaction():
        order = await connection.fetchval(
            "insert into orders (customer, item) values ($1, $2) returning id", customer, item
        )
        value = json.dumps({"order": order, "customer": customer, "item": item})
        await connection.execute(
            "insert into outbox (topic, key, value) values ($1, $2, $3)",
            *(topic, customer.encode(), value.encode()),
        )
    return order


async def run(dsn: str, topic: str, count: int) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for number in range(count):
            await place_order(connection, topic, f"customer {number % 10}", number)
    finally:
        await connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Places orders.")
    parser.add_argument("database")
    parser.add_argument("topic")
    parser.add_argument("--count", type=int, default=100)
    options = parser.parse_args()
    asyncio.run(run(options.database, options.topic, options.count))


if __name__ == "__main__":
    main()
