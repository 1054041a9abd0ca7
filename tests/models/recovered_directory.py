"""A partition directory as predicted by `RecoveredLog`, and as a stopped broker left it."""

from __future__ import annotations

from kafkastore.formats.state import producer_snapshot
from kafkastore.formats.state.checkpoints import parse_leader_epoch_checkpoint

ENTRY_SIZES = {".index": 8, ".timeindex": 12}


def files_of(path):
    """Name -> bytes."""
    return {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}


def files_after(recovered):
    """The files of a directory after the predicted changes."""
    files = files_of(recovered.path)
    new_logs = {
        name: files[copied.source][copied.start : copied.end]
        for name, copied in recovered.copied.items()
    }
    for name in recovered.deleted:
        del files[name]
    for name, new_name in recovered.renamed.items():
        files[new_name] = files.pop(name)
    files |= new_logs
    for name, size in recovered.cut.items():
        assert size < len(files[name])
        files[name] = files[name][:size]
    return files | dict(recovered.written)


def snapshots_of(files):
    """Offset -> producers, by content: brokers write them in any order."""
    return {
        int(name.partition(".")[0]): sorted(producer_snapshot.parse(data).tolist())
        for name, data in files.items()
        if name.endswith(".snapshot")
    }


def epochs_of(files):
    data = files.get("leader-epoch-checkpoint", b"")
    return [tuple(entry) for entry in parse_leader_epoch_checkpoint(data)] if data else []


def indexes_and_logs(files, *, whole_entries=False):
    """The files that must be equal; a closing broker cuts odd bytes off some indexes."""
    found = {}
    for name, data in files.items():
        suffix = name[20:]
        if suffix in ENTRY_SIZES and whole_entries:
            found[name] = data[: len(data) - len(data) % ENTRY_SIZES[suffix]]
        elif suffix in (".log", ".txnindex", *ENTRY_SIZES):
            found[name] = data
    return found


def kept_when_stopped(snapshots, base_offsets, version):
    """The snapshots that a stopping broker keeps: before 2.8 those of the last two segments.

    Source: Kafka 2.4.0 ``Log.deleteSnapshotsAfterRecoveryPointCheckpoint``.
    """
    if version >= (2, 8):
        return snapshots
    first = sorted(base_offsets)[-2:][0]
    return {offset: entries for offset, entries in snapshots.items() if offset >= first}
