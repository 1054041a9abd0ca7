"""``kafkastore retention``: the segments a broker would delete or keep."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from kafkastore.cli.options.durations import parse_duration
from kafkastore.cli.options.kafka_version import kafka_version_option
from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import FOUND_PROBLEMS, print_note
from kafkastore.cli.output.grouped_lines import group_lines
from kafkastore.cli.output.tables import format_count, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.jobs.retention import RetentionJob, partition_row, place_row, segment_row
from kafkastore.log.remote_log import RemoteStorage
from kafkastore.log.timestamp_warnings import TimestampWarning
from kafkastore.metadata.topic_configs import ConfigSource
from kafkastore.shown_text import format_size
from kafkastore.use_cases.retention import DatedBy, PartitionRetention, SegmentRetention
from kafkastore.versions import rules_of
from kafkastore.writing.retention import RetentionRule, StopReason
from kafkastore.writing.topic_settings import settings_of

Options = dict[str, str]


def _parse_options(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> Options:
    """Parse ``key=value`` pairs."""
    options = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator:
            raise click.BadParameter(
                f"must be KEY=VALUE such as retention.ms=3600000, got {text!r}"
            )
        options[key.strip()] = value.strip()
    return options


def _parse_retention_ms(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> str | None:
    """Parse retention.ms: a number, -1 for no limit, or a duration with units."""
    if text is None or text.strip().startswith("-"):
        return text
    return str(parse_duration(context, parameter, text))


@store_command("metadata", "relative-to", "tz", "spark", "verbose")
@click.option(
    "--config",
    "options",
    multiple=True,
    callback=_parse_options,
    metavar="KEY=VALUE",
    help="A topic configuration by Kafka's name; may be repeated. Default: that of the metadata, "
    "or Kafka's.",
)
@click.option(
    "--retention-ms", metavar="DURATION", callback=_parse_retention_ms,
    help="The same as --config retention.ms=N; also such as 7d or 36h.",
)
@click.option("--retention-bytes", metavar="N", help="The same as --config retention.bytes=N.")
@click.option(
    "--now", "now", default="now", metavar="TIME",
    help="The broker's current time: ms since 1970, ISO 8601 or -2h. Default: now.",
)
@kafka_version_option("The version of the broker.")
@click.option("--segments", is_flag=True, help="One row for each segment.")
def command(
    call: StoreCall,
    options: Options,
    retention_ms: str | None,
    retention_bytes: str | None,
    now: str,
    version: str,
    segments: bool,
) -> int:
    """Show which segments a broker's retention would delete; nothing is changed.

    The exit code is 1 if the time of a segment is doubtful (in the future, in the wrong unit, or
    zeros in its time index), or if a partition can't be read.
    """
    for name, value in (("retention.ms", retention_ms), ("retention.bytes", retention_bytes)):
        if value is not None:
            options[name] = value
    rules_of(version)
    moment = call.parse_moment(now)
    selection = call.selection
    (at,) = call.resolve_times([moment])
    settings = settings_of(call.cluster, selection.store, options)
    job = RetentionJob(settings, at, version)
    items = call.items(job)
    if any(log.log_dir is None for log in selection.logs()):
        print_note(
            "a partition directory by itself has no checkpoints and no clean-shutdown marker; its "
            "log starts with its first segment, and the active one counts as recovered"
        )
    found = call.run(job, items, "checking retention", _rows)
    if not call.as_json:
        _print_head(call, found, version, at)
        _print(call, found, segments=segments)
    is_doubtful = any(_is_wrong(segment) for each in found for segment in each.segments)
    return call.problems.exit_code or (FOUND_PROBLEMS if is_doubtful else 0)


def _print_head(
    call: StoreCall, found: Sequence[PartitionRetention], version: str, at: int
) -> None:
    """Print the configurations, by the topics that have them."""
    print(f"a broker of Kafka {version} at {call.format_time(at)}")
    topics: dict[str, dict[str, None]] = {}
    for each in found:
        topics.setdefault(_configured(each), {})[each.topic_partition.topic] = None
    for configured, names in topics.items():
        shown = "" if len(topics) == 1 else f": {', '.join(names)}"
        print_text(f"  {configured}{shown}")


def _configured(found: PartitionRetention) -> str:
    """Describe the configurations of a partition, with their sources."""
    config = found.config
    values = (
        ("cleanup.policy", ",".join(sorted(config.cleanup_policy)) or "none"),
        ("retention.ms", f"{config.retention_ms}{_format_interval(config.retention_ms)}"),
        ("retention.bytes", str(config.retention_bytes)),
        *_local_limits(found),
    )
    return ", ".join(
        f"{name}={value} [{found.config_sources.get(name, ConfigSource.DEFAULT).value}]"
        for name, value in values
    )


def _local_limits(found: PartitionRetention) -> Iterator[tuple[str, str]]:
    """Yield the limits of the segments here, if others are in remote storage."""
    if found.remote_storage is not RemoteStorage.OFF:
        age, size = found.limits
        yield "local.retention.ms", f"{age}{_format_interval(age)}"
        yield "local.retention.bytes", str(size)


def _is_wrong(segment: SegmentRetention) -> bool:
    """Return whether a segment's time is doubtful and affects retention."""
    is_doubtful = segment.doubt is not None or segment.dated_by is DatedBy.ZEROS
    return is_doubtful and segment.expires_at is not None


def _rows(found: PartitionRetention) -> Iterator[dict[str, Any]]:
    """Yield the row of a partition, then those of its segments."""
    yield {"kind": "partition", **partition_row(found)}
    for each in found.segments:
        yield {"kind": "segment", **place_row(found, each.path), **segment_row(each)}


def _print(call: StoreCall, found: Sequence[PartitionRetention], *, segments: bool) -> None:
    """Print a table, remarks and a summary."""
    if segments:
        _print_segments(call, found)
    else:
        _print_partitions(found)
    remarks = (
        (kind, f"{each.topic_partition}: {remark}")
        for each in found
        for kind, remark in _remarks(call, each)
    )
    for line in group_lines(remarks, verbose=call.verbose):
        print_text(line)
    known = [segment for each in found for segment in each.segments]
    going = [segment for segment in known if segment.deleted_by is not None]
    print(
        f"{format_count(len(going), 'segment')} of {len(known):,} would be deleted, "
        f"{_size(going)} of {_size(known)}"
    )


def _size(segments: Sequence[SegmentRetention]) -> str:
    return format_size(sum(each.size for each in segments))


def _print_partitions(found: Sequence[PartitionRetention]) -> None:
    print_table(
        ["partition", "segments", "deleted", "by", "size", "start", "new start", "blocked"],
        (
            [
                str(each.topic_partition),
                f"{len(each.segments):,}",
                f"{len(each.going):,}",
                ", ".join(sorted({_rule(each, segment) for segment in each.going})) or "-",
                _size(each.going),
                str(each.log_start_offset),
                _new_start(each),
                f"{len(each.blocked):,}",
            ]
            for each in found
        ),
        right="segments,deleted,size,start,new start,blocked",
    )


def _print_segments(call: StoreCall, found: Sequence[PartitionRetention]) -> None:
    print_table(
        ["partition", "base", "size", "largest timestamp", "dated by", "expires", "result"],
        (
            [
                str(each.topic_partition),
                str(segment.base_offset),
                format_size(segment.size),
                call.format_time(segment.largest_timestamp),
                segment.dated_by.value.replace("-", " "),
                call.format_time(segment.expires_at),
                _result(each, segment),
            ]
            for each in found
            for segment in each.segments
        ),
        right="base,size",
    )


def _new_start(found: PartitionRetention) -> str:
    """Return the log start afterwards, and where the log here starts if that differs."""
    start, local = found.outcome.log_start_offset, found.outcome.local_log_start_offset
    return str(start) if start == local else f"{start} (here {local})"


def _rule(found: PartitionRetention, segment: SegmentRetention) -> str:
    """Return the Kafka option by which a segment is deleted."""
    local = "local." if found.remote_storage is RemoteStorage.ON else ""
    return {
        RetentionRule.TIME: f"{local}retention.ms",
        RetentionRule.SIZE: f"{local}retention.bytes",
        RetentionRule.START: "log start",
        None: "-",
    }[segment.deleted_by]


def _result(found: PartitionRetention, segment: SegmentRetention) -> str:
    if segment.deleted_by is not None:
        return f"deleted by {_rule(found, segment)}"
    if segment.blocked_by == segment.base_offset:
        stops = {each.segment.base_offset: each.reason for each in found.outcome.stops}
        if stops.get(segment.base_offset) is StopReason.NOT_COPIED:
            return "kept: not in remote storage"
        return "kept: high watermark"
    if segment.blocked_by is not None:
        return f"kept: segment {segment.blocked_by} is kept"
    return "kept"


def _remarks(
    call: StoreCall, found: PartitionRetention
) -> Iterator[tuple[tuple[object, ...], str]]:
    """Yield remarks on doubtful times and blocked segments, each after its kind."""
    doubtful: dict[tuple[object, ...], list[SegmentRetention]] = {}
    for segment in filter(_is_wrong, found.segments):
        doubtful.setdefault((segment.dated_by, segment.doubt), []).append(segment)
    for kind, alike in doubtful.items():
        later = sum(each.base_offset > alike[0].base_offset for each in found.segments)
        yield kind, _doubt(call, alike[0], len(alike) - 1, later)
    blocker = found.blocker
    if blocker is None:
        return
    over = [each for each in found.blocked if each is not blocker]
    stop = next(each for each in found.outcome.stops if each.rule is RetentionRule.TIME)
    if stop.reason is StopReason.HIGH_WATERMARK:
        reason = f"has records at or above the high watermark, {found.high_watermark}"
    elif stop.reason is StopReason.NOT_COPIED:
        reason = "is not in remote storage yet"
    else:
        reason = f"is kept until {call.format_time(blocker.expires_at)}"
    if over:
        yield (stop.reason, True), (
            f"{format_count(len(over), 'segment')} ({_size(over)}) expired but cannot be "
            f"deleted before segment {blocker.base_offset}, which {reason}"
        )
    else:
        yield (stop.reason, False), f"segment {blocker.base_offset} expired but {reason}"


def _doubt(call: StoreCall, segment: SegmentRetention, more: int, later: int) -> str:
    """Describe what is doubtful about a segment's time, and the effect."""
    which = f"segment {segment.base_offset}" + (f" (and of {more:,} more)" if more else "")
    others = {0: "", 1: " or the later segment"}.get(later, f" or the {later:,} later segments")
    if segment.dated_by is DatedBy.ZEROS:
        newest = "no record has a timestamp"
        if segment.record_timestamp is not None and segment.record_timestamp >= 0:
            newest = f"the newest record is of {call.format_time(segment.record_timestamp)}"
        return (
            f"the time index of {which} ends in zeros: a broker reads 0 as the largest timestamp "
            f"and {_deletion_note(segment)}, although {newest}; rebuild it with kafkastore reindex"
        )
    if segment.doubt is TimestampWarning.FUTURE:
        what = "modification time" if segment.dated_by is DatedBy.MODIFICATION_TIME else (
            "largest timestamp"
        )
        until = call.format_time(segment.expires_at)
        return (
            f"the {what} of {which}, {call.format_time(segment.largest_timestamp)}, is in the "
            f"future: retention.ms does not delete it{others} before {until}"
        )
    meant = (
        f"the largest timestamp of {which}, {segment.largest_timestamp}, is in {segment.doubt}, if "
        f"it means {call.format_time(segment.meant_timestamp)}"
    )
    if segment.doubt is TimestampWarning.SECONDS:
        as_ms = call.format_time(segment.largest_timestamp)
        return f"{meant}; as ms it is {as_ms}, and a broker {_deletion_note(segment)}"
    return (
        f"{meant}; as ms it is more than 10,000 years ahead, and retention.ms never deletes "
        f"it{others}"
    )


def _deletion_note(segment: SegmentRetention) -> str:
    """Describe what happens to a segment whose time is taken for 1970."""
    if segment.deleted_by is not None:
        return "deletes it immediately"
    return "deletes it as soon as it is the oldest"


def _format_interval(duration_ms: int) -> str:
    """Format a duration in its largest exact unit, to append to the number of ms."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if duration_ms > 0 and duration_ms % length == 0:
            return f" ({duration_ms // length}{unit})"
    return ""
