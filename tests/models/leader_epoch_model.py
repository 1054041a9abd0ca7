"""Leader epochs the slow way: Kafka 2.4.0 LeaderEpochFileCache, each rule as a list comprehension.

Entries are lists of pairs (epoch, start offset); nothing is changed in place.
"""


def assign(entries, epoch, start_offset):
    if entries and entries[-1][0] == epoch and start_offset >= entries[-1][1]:
        return entries
    kept = [entry for entry in entries if entry[0] < epoch and entry[1] < start_offset]
    return [*kept, (epoch, start_offset)]


def recover(entries, headers, first_epoch):
    """Apply each batch as LogSegment.recover does."""
    for header in headers:
        epoch = int(header["leader_epoch"])
        is_higher = not entries or epoch > entries[-1][0]
        if header["magic"] >= 2 and epoch >= first_epoch and is_higher:
            entries = assign(entries, epoch, int(header["base_offset"]))
    return entries


def truncate_from_end(entries, end_offset):
    if end_offset < 0:
        return entries
    return [entry for entry in entries if entry[1] < end_offset]


def truncate_from_start(entries, start_offset):
    before = [entry for entry in entries if entry[1] <= start_offset]
    later = [entry for entry in entries if entry[1] > start_offset]
    return [(before[-1][0], start_offset), *later] if before else entries


def epoch_for_offset(entries, offset):
    epochs = [epoch for epoch, start_offset in entries if start_offset <= offset]
    return epochs[-1] if epochs else None


def end_offset_for(entries, requested_epoch, log_end_offset):
    if requested_epoch == -1:
        return -1, -1
    if entries and entries[-1][0] == requested_epoch:
        return requested_epoch, log_end_offset
    up_to = [epoch for epoch, _ in entries if epoch <= requested_epoch]
    later = [start_offset for epoch, start_offset in entries if epoch > requested_epoch]
    if not later:
        return -1, -1
    return up_to[-1] if up_to else requested_epoch, later[0]
