"""The case about transactions."""
from __future__ import annotations

import time

from ..case_context import CaseContext
from .registry import case

_IDEMPOTENT = {"enable.idempotence": "true", "acks": "all"}
_TRANSACTIONAL_IDS = ("tx-a", "tx-b", "tx-c")
_UNUSED_ADDRESS = "127.0.0.1:9"


class _Producers:
    """Producers of one topic, some in transactions.

    Markers carry the broker's clock: partition 0 gets timestamps of about now, partition 1 long
    past ones.
    """

    def __init__(self, context: CaseContext, now: int) -> None:
        self._context, self._lag = context, now - context.first_timestamp

    def send(
        self,
        producer: str,
        timestamps: list[int],
        partition: int = 0,
        config: dict[str, str] | None = None,
    ) -> None:
        """Produce, within the producer's transaction if it has one."""
        stamps = [timestamp - self._lag * partition for timestamp in timestamps]
        batches = self._context.batches(stamps, (1, 2, 3))
        self._context.produce("txn", batches, partition, producer=producer, config=config)

    def transaction(self, producer: str, action: str) -> None:
        """Do one of init, begin, commit, abort."""
        config = {"transactional.id": producer, "transaction.timeout.ms": "600000"} | _IDEMPOTENT
        self._context.client("txn", id=producer, action=action, props=config)


@case(since="0.11")
def transactions(context: CaseContext) -> None:
    """Commits, aborts, interleaved producers, one transaction left open."""
    context.start()
    context.create_topic("txn", 2, segment_bytes=2500)
    rng, now = context.rng, int(time.time() * 1000)
    producers = _Producers(context, now)
    for producer in _TRANSACTIONAL_IDS:
        producers.transaction(producer, "init")
    producers.send("plain", [now + number for number in range(5)])
    stamps = [now + 100 + number for number in range(8)]
    producers.send("idem", stamps, config=_IDEMPOTENT)
    timestamp = now + 1000
    for turn in range(8):
        live = rng.sample(_TRANSACTIONAL_IDS, 2)
        for producer in live:
            producers.transaction(producer, "begin")
        for _ in range(3):
            for producer in live:
                stamps = [timestamp + delta for delta in range(rng.choice((1, 4)))]
                producers.send(producer, stamps, rng.choice((0, 0, 1)))
                timestamp += 50
            if rng.random() < 0.5:
                producers.send("plain", [timestamp])
        for producer in live:
            action = "abort" if turn == 1 else rng.choice(("commit", "abort"))
            producers.transaction(producer, action)
            timestamp += 50
        producers.send("idem", [timestamp, timestamp + 1], rng.choice((0, 1)))
    producers.transaction("tx-c", "begin")  # stays open
    producers.send("tx-c", [timestamp + 100, timestamp + 101])
    producers.send("plain", [timestamp + 200, timestamp + 201, timestamp + 202])
    context.ask_all(committed=True)
    context.ask("__transaction_state")
    context.stop()
    # A new connection closes the producers, also the one that is still in its transaction.
    context.client("connect", bootstrap=_UNUSED_ADDRESS)
    context.save()
