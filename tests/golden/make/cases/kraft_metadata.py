"""The case about the metadata log of KRaft."""
from __future__ import annotations

import time

from ..case_context import CaseContext
from ..dump import dump_log_segments
from ..server_properties import METADATA_WITH_LOGS
from .registry import case


@case(since="3.9")
def kraft_metadata(context: CaseContext) -> None:
    """``__cluster_metadata-0`` among the logs, with snapshots, and the decoder's print of it."""
    snapshots = "metadata.log.max.record.bytes.between.snapshots"
    context.start({METADATA_WITH_LOGS: 1, snapshots: 2000})
    start = context.first_timestamp
    for number in range(6):
        context.create_topic(f"meta-{number}", 1 + number % 2)
        batches = context.batches([start + delta for delta in range(5)])
        context.produce(f"meta-{number}", batches)
    context.client("config", topic="meta-1", configs={"max.message.bytes": "123456"})
    context.client("delete_topic", topic="meta-5")
    del context.partitions["meta-5"]
    time.sleep(3)
    context.ask_all()
    context.stop()
    metadata = context.cluster.logs / "__cluster_metadata-0"
    files = sorted(path for path in metadata.iterdir() if path.suffix in (".log", ".checkpoint"))
    printed = context.cluster.tool(
        dump_log_segments(context.version),
        *("--cluster-metadata-decoder", "--skip-record-metadata"),
        *("--files", ",".join(str(path) for path in files)),
        check=True,
    )
    text = printed.replace(f"{metadata}/", "")
    (context.out / "cluster-metadata.txt").write_text(text)
    context.save()
