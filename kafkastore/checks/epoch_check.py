"""Check the leader epoch checkpoint against the log's batches.

A replica asks where an epoch ends to decide where to truncate its log, so a wrong line can cost
records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafkastore.checks.batch_faults import TRUE_EPOCH_REMEDY
from kafkastore.checks.findings import Finding, FindingKind, command
from kafkastore.errors import CorruptCheckpointError, CorruptionError
from kafkastore.formats.primitives.java_text import lines_with_positions
from kafkastore.formats.state.checkpoints import EpochStart, parse_leader_epoch_checkpoint
from kafkastore.formats.state.file_names import LEADER_EPOCH_CHECKPOINT
from kafkastore.formats.state.leader_epochs import LeaderEpochs
from kafkastore.segment.log_segment import LogSegment
from kafkastore.segment.small_file import read_if_there
from kafkastore.store.partition_log import PartitionLog

# The version, and the number of entries.
_HEAD_LINES = 2


class EpochCheck:
    """The check of one partition's checkpoint, in step with the pass over its log."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._path = log.path / LEADER_EPOCH_CHECKPOINT
        self._entries: tuple[EpochStart, ...] = ()
        self._line_positions: list[int] = []
        self._has_finding = False
        self._mismatch: Finding | None = None
        self._unknown: tuple[int, int] | None = None

    def read(self) -> Iterator[Finding]:
        """Read the checkpoint; report if it is corrupt or its entries are not in order."""
        try:
            data = read_if_there(self._path, CorruptCheckpointError)
            entries = () if data is None else parse_leader_epoch_checkpoint(data)
        except CorruptCheckpointError as error:
            self._has_finding = True
            yield Finding(
                FindingKind.CORRUPT_LEADER_EPOCH_CHECKPOINT, self._path, error.position,
                error.reason, command("repair", self._log.path),
            )
            return
        lines = [position for position, _ in lines_with_positions(data or b"")]
        self._entries, self._line_positions = entries, lines[_HEAD_LINES:]
        before = EpochStart(-1, -1)
        for slot, entry in enumerate(entries):
            if min(entry) < 0:  # brokers from 2.8 on do not load it
                self._has_finding = True
                yield Finding(
                    FindingKind.CORRUPT_LEADER_EPOCH_CHECKPOINT, self._path, self._position(slot),
                    f"epoch {entry.epoch} from offset {entry.start_offset} on: neither may be "
                    "negative", command("repair", self._log.path),
                )
                return
            if entry.epoch <= before.epoch or entry.start_offset <= before.start_offset:
                yield self._wrong(
                    slot,
                    f"epoch {entry.epoch} from offset {entry.start_offset} on does not follow "
                    f"epoch {before.epoch} from offset {before.start_offset} on",
                )
                return
            before = entry

    def batches(self, segment: LogSegment, epochs: Sequence[tuple[int, int]]) -> None:
        """Compare the epochs of a segment's batches, up to the first contradiction.

        `epochs` are pairs of an epoch and its first offset in the segment, both ascending.
        """
        if self._has_finding or not self._entries:
            return
        known = LeaderEpochs(self._entries)
        starts = {entry.epoch: (slot, entry) for slot, entry in enumerate(known.entries)}
        for epoch, first_offset in epochs:
            here = known.epoch_for_offset(first_offset)
            if epoch < 0 or here is None:
                if epoch > 0 and self._unknown is None:  # brokers 2.2 to 2.6 don't recover 0
                    self._unknown = epoch, first_offset
                continue
            if here > epoch or (here < epoch and not self._log.is_recovered_at_start(segment)):
                self._mismatch = self._wrong(
                    starts[here][0],
                    f"offset {first_offset} is in epoch {here}, its batch in "
                    f"{segment.log_path.name} has epoch {epoch}",
                )
                return
        end = segment.next_base_offset
        for slot, entry in enumerate(known.entries):
            if segment.base_offset <= entry.start_offset and (
                end is None or entry.start_offset < end
            ):
                self._first_batch(segment, known, slot, entry)
            if self._has_finding:
                return

    def mismatch(self, *, epochs_decrease: bool) -> Iterator[Finding]:
        """Report the contradiction; where batches' epochs decrease, a batch may be wrong."""
        if self._mismatch is not None:
            remedy = TRUE_EPOCH_REMEDY if epochs_decrease else self._mismatch.remedy
            yield self._mismatch._replace(remedy=remedy)

    def _first_batch(
        self, segment: LogSegment, known: LeaderEpochs, slot: int, entry: EpochStart
    ) -> None:
        """Note the first batch from an epoch's start on if it has another epoch."""
        try:
            found = segment.translate_offset(entry.start_offset)
            if found is None:
                return
            with segment.open_log() as log:
                header = log.header_at(found.position)
        except (CorruptionError, OSError):
            return  # the check of the segment reports it
        if header is None or header["leader_epoch"] < 0:
            return
        offset, epoch = max(entry.start_offset, int(header["base_offset"])), header["leader_epoch"]
        expected = known.epoch_for_offset(offset) or 0
        if expected > epoch or (expected < epoch and not self._log.is_recovered_at_start(segment)):
            self._mismatch = self._wrong(
                slot,
                f"offset {offset} is in epoch {expected}, its batch in {segment.log_path.name} at "
                f"byte {found.position} has epoch {epoch}",
            )

    def end(self, log_end_offset: int, *, has_epochs: bool) -> Iterator[Finding]:
        """Compare with the log end offset; `has_epochs`: at least one batch has an epoch."""
        if self._has_finding:
            return
        if not self._entries and has_epochs:
            yield Finding(
                FindingKind.NO_LEADER_EPOCHS, self._path, None,
                "the checkpoint has no leader epochs, although batches have them",
                "none needed: a broker adds its next epoch",
            )
        if self._unknown is not None:
            epoch, offset = self._unknown
            yield Finding(
                FindingKind.MISSING_LEADER_EPOCH, self._path, self._position(0),
                f"leader epoch {epoch} is missing, although batches from offset {offset} on have "
                "it",
            )
        beyond = [slot for slot, each in enumerate(self._entries) if
                  each.start_offset > log_end_offset]
        if beyond:
            entry = self._entries[beyond[0]]
            yield Finding(
                FindingKind.LEADER_EPOCH_BEYOND_LOG_END, self._path, self._position(beyond[0]),
                f"epoch {entry.epoch} begins at offset {entry.start_offset}, beyond the log end "
                f"offset {log_end_offset}",
            )

    def _position(self, slot: int) -> int | None:
        return self._line_positions[slot] if slot < len(self._line_positions) else None

    def _wrong(self, slot: int, what: str) -> Finding:
        self._has_finding = True
        return Finding(
            FindingKind.LEADER_EPOCH_MISMATCH, self._path, self._position(slot),
            f"leader epochs: {what}", command("repair", self._log.path),
        )
