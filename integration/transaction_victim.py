"""Writes transaction after transaction until it is killed; see test_transactions.py.

    python transaction_victim.py BOOTSTRAP TOPIC INSTANCE RECORDS [TRANSACTIONS]

Says "wrote SECONDS" when the first record is acknowledged, counted from the start of the producer,
and "committed N" after each commit.
"""

from __future__ import annotations

import asyncio
import sys
import time

from kafkaclient import Producer


async def main(
    bootstrap: str, topic: str, instance: str, records: str, transactions: str = ""
) -> None:
    began = time.monotonic()
    async with Producer(bootstrap, transactional_id=f"tx-{topic}", linger_ms=1) as producer:
        for n in range(int(transactions or "1000000")):
            async with producer.transaction():
                for m in range(int(records)):
                    value = f"{instance} {n} {m}".encode()
                    if n == m == 0:
                        await producer.send_and_wait(topic, value)
                        print("wrote", time.monotonic() - began, flush=True)
                    else:
                        await producer.send(topic, value, b"%d" % m if m % 2 else None)
                    if m % 20 == 0:
                        await asyncio.sleep(0.002)
            print("committed", n, flush=True)


asyncio.run(main(*sys.argv[1:]))
