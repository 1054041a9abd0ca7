"""A small log directory of five partitions, two of which are damaged, each in its own way."""

from models.bit_flips import batches
from use_cases.stores import T0, commit, record, written

import kafkastore

#: In the second of four segments: the length of a batch, and a byte of a batch's records.
DAMAGED = ("orders-1", "orders-3")
SOUND = ("orders-0", "orders-2", "orders-4")
BATCHES = 12
PER_BATCH = 3
RECORDS = BATCHES * PER_BATCH
_SEGMENTS = 4


def write_store(root, *, damaged=True):
    """Write the directory, and two groups' commits in it."""
    with written(root) as partition:
        for number in range(BATCHES):
            for index in range(5):
                writer = partition("orders", index)
                if number and number % (BATCHES // _SEGMENTS) == 0:
                    writer.log.roll()
                writer.add(
                    *(
                        record(T0 + 1000 * number + each, b"%d %d %d" % (index, number, each))
                        for each in range(PER_BATCH)
                    )
                )
        for group, index, offset in (("billing", 1, 5), ("billing", 3, 2), ("mail", 0, 30)):
            partition("__consumer_offsets").add(commit(group, "orders", index, offset))
    if damaged:
        flip_length(closed_log(root, DAMAGED[0]))
        flip_payload(closed_log(root, DAMAGED[1]))
    return root


def closed_log(root, partition, segment=1):
    """The log of one of a partition's segments."""
    return kafkastore.open(root)[partition].segments[segment].log_path


def flip_length(path, batch=1):
    """Flip a bit of a batch's length, so that the next batch seems to begin inside of it."""
    _flip(path, batch, 8, 1 << 4)


def flip_payload(path, batch=1):
    """Flip a bit of a batch's last byte, so that its checksum is wrong."""
    _flip(path, batch, -1, 1)


def zero_batch(path, batch=1):
    """Overwrite a batch with zeros, as a lost sector reads; the batches after it stay."""
    data = bytearray(path.read_bytes())
    begins = _begins(data)
    data[begins[batch] : begins[batch + 1]] = bytes(begins[batch + 1] - begins[batch])
    path.write_bytes(data)


def _begins(data):
    return [begin for begin, *_ in batches(bytes(data))] + [len(data)]


def _flip(path, batch, position, bits):
    data = bytearray(path.read_bytes())
    begins = _begins(data)
    at = begins[batch] + position if position >= 0 else begins[batch + 1] + position
    data[at] ^= bits
    path.write_bytes(data)
