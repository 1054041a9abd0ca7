"""Both indexes against the classes of real brokers, on sound, padded, unsorted and any bytes."""

import struct

import numpy as np
import pytest
from models import kafka_classes
from models.index_bytes import sorted_entries, targets_near

from kafkastore.errors import CorruptIndexError
from kafkastore.formats import offset_index, time_index

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

WITHOUT_WARM_SECTION = ["0.10.2.2", "0.11.0.3"]
VERSIONS = [*WITHOUT_WARM_SECTION, "2.4.0", "3.9.1", "4.1.1"]
LAYOUTS = {"offset": ">ii", "time": ">qi"}


def index_files(layout, seed):
    """Index files of every sort, some with odd bytes at the end; never empty (no file to map)."""
    size = struct.calcsize(layout)
    random = np.random.default_rng(seed)
    for count in (1, 2, 3, 40, 681, 682, 683, 684, 1023, 1024, 1025, 1026, 2500):
        data = sorted_entries(layout, count, int(random.integers(2**32)))
        yield data
        yield data + bytes(size * int(random.integers(1, 3000)))
        yield data[: len(data) - 1 - int(random.integers(size - 1))]
        harmed = bytearray(data)
        for at in random.integers(len(data), size=3):
            harmed[at] ^= 1 << int(random.integers(8))
        yield bytes(harmed)
        few = int(random.integers(1, 2 * count + 2))
        slots = random.integers(-few, few, (count, 2)).tolist()
        yield b"".join(struct.pack(layout, *slot) for slot in slots)
        yield random.bytes(count * size)


def shown(entry):
    """Print an entry as the Java side does."""
    return "none" if entry is None else " ".join(map(str, entry))


def verdict(module, data, base_offset):
    """Print the sanity check's verdict as the Java side does."""
    try:
        module.check(data, base_offset)
    except CorruptIndexError:
        return "refused"
    return "sound"


def questions(kind, data, base_offset, seed, *, warm_section):
    """Yield what both sides are asked, with our answer: (answer, operation, arguments...)."""
    module = offset_index if kind == "offset" else time_index
    slots = module.parse(data, base_offset)
    options = {"warm_section": warm_section}
    yield str(module.entry_count(data)), "count"
    for target in targets_near(slots["offset" if kind == "offset" else "timestamp"], seed).tolist():
        yield shown(module.lookup(data, base_offset, target, **options)), "lookup", target
    for offset in targets_near(slots["offset"], seed).tolist()[:8]:
        yield str(module.truncate_to(data, base_offset, offset, **options)), "truncate", offset
    last = module.last_entry(data, base_offset)
    if kind == "time":
        yield shown(last), "last"
        yield verdict(module, data, base_offset), "check"
        return
    yield str(last.offset), "last"
    if warm_section:  # earlier versions check otherwise, see below; 0.10.2.2 knows no upper bound
        yield verdict(module, data, base_offset), "check"
        for position in [0, 1, *(abs(slots["position"][::50].astype(int)) % 2**30).tolist()]:
            bound = module.fetch_upper_bound(data, base_offset, position, 99)
            yield shown(bound), "upper", position, 99


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", LAYOUTS)
def test_every_answer_is_that_of_the_broker(tmp_path, require_broker, version, kind):
    require_broker(version)
    requests, expected = [], []
    for number, data in enumerate(index_files(LAYOUTS[kind], seed=11)):
        base_offset = (0, 45, 2**40, 2**63 - 5)[number % 4]
        path = tmp_path / str(number)
        path.write_bytes(data)
        for answer, *question in questions(
            kind, data, base_offset, number, warm_section=version not in WITHOUT_WARM_SECTION
        ):
            requests.append((kind, path, base_offset, *question))
            expected.append(answer)
    answers = kafka_classes.ask(version, requests)
    compared = zip(requests, answers, expected, strict=True)
    wrong = [(request, theirs, ours) for request, theirs, ours in compared if theirs != ours]
    assert not wrong, (len(wrong), len(requests), wrong[:5])
    assert len(set(answers)) > 1000


@pytest.mark.parametrize("version", WITHOUT_WARM_SECTION)
def test_brokers_before_2_0_refuse_a_last_offset_equal_to_the_base_offset(
    tmp_path, require_broker, version
):
    require_broker(version)
    padded = tmp_path / "0.index"
    padded.write_bytes(offset_index.pack([(5, 100)], 0) + bytes(80))
    offset_index.check(padded.read_bytes(), 0)
    assert kafka_classes.ask(version, [("offset", padded, 0, "check")]) == ["refused"]
