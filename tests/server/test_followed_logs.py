"""Served logs under a writer that appends, rolls, truncates, deletes and replaces them."""

from __future__ import annotations

import asyncio
import random
import shutil
from concurrent.futures import Executor, Future

from models.protocol_client import LARGEST
from models.record_format import Batch, Row, marker
from models.seed import SEED, some
from server.group_loop import Loop
from server.test_fetched_records import fetch, fetching

import kafkastore
from kafkastore.formats.primitives.error_codes import ErrorCode
from kafkastore.server.fetch.waiting import LogWatch

STEPS = 120
PRODUCERS = (7, 8, 9)


class Writer:
    """A writer that does something at random at each step."""

    def __init__(self, root, chance):
        self.root, self.chance = root, chance
        self.log_dir = kafkastore.LogDirWriter(root)
        self.log = self.log_dir.writer("t", 0, {"segment.bytes": 700, "index.interval.bytes": 100})
        self.written = []    # offset, producer and whether it is a marker

    @property
    def begun(self):
        """The producers with an open transaction."""
        begun = set()
        for _, producer_id, is_marker in self.written:
            (begun.discard if is_marker else begun.add)(producer_id)
        return begun - {-1}

    def append(self):
        offset, chance = self.log.log_end_offset, self.chance
        if self.begun and chance.random() < 0.4:
            producer_id, is_marker = chance.choice(sorted(self.begun)), True
            batch = marker(
                offset, 5, is_commit=chance.random() < 0.5, producer_id=producer_id
            )
        else:
            producer_id, is_marker = chance.choice((-1, *PRODUCERS)), False
            batch = Batch(
                (Row(offset, 5, b"k", b"v" * chance.randrange(60)),),
                producer_id=producer_id, producer_epoch=min(producer_id, 0),
                base_sequence=min(producer_id, 0), is_transactional=producer_id >= 0,
            )
        self.written.append((offset, producer_id, is_marker))
        self.log.append(batch.data, as_follower=True)
        self.log.flush()

    def truncate(self):
        end, start = self.log.log_end_offset, self.log.log_start_offset
        offset = self.chance.randint(max(start, end - 6), end)
        self.log.truncate_to(offset)
        self.written = [each for each in self.written if each[0] < offset]

    def delete(self):
        end, start = self.log.log_end_offset, self.log.log_start_offset
        self.log.delete_records(self.chance.randint(start, end))
        self.log_dir.checkpoint()

    def step(self):
        what = self.chance.choice(
            ("append",) * 10 + ("roll", "roll", "truncate", "delete", "retain")
        )
        match what:
            case "append":
                self.append()
            case "roll":
                self.log.roll()
            case "truncate":
                self.truncate()
            case "delete":
                self.delete()
            case "retain":
                self.log.delete_old_segments()


def test_a_followed_log_answers_as_one_that_was_just_opened(tmp_path):
    chance = random.Random(f"{SEED}/{__name__}")
    writer = Writer(tmp_path / "logs", chance)
    for _ in range(5):
        writer.append()
    followed = fetching(tmp_path / "logs")
    errors, aborted = set(), 0
    for _ in range(STEPS):
        writer.step()
        opened = fetching(tmp_path / "logs")
        start, end = writer.log.log_start_offset, writer.log.log_end_offset
        for offset in some(range(start - 1, end + 2), 3, str(end)):
            for isolation in (0, 1):
                limit = chance.choice((1, 300, LARGEST))
                row = fetch(followed, offset, limit, isolation)
                assert row == fetch(opened, offset, limit, isolation)
                errors.add(row["error_code"])
                if not row["error_code"]:
                    assert row["high_watermark"] == end
                    assert row["log_start_offset"] == start
                    aborted += len(row["aborted_transactions"] or ())
    assert errors == {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE}
    assert aborted
    writer.log_dir.close()


def test_a_directory_that_is_replaced_gives_the_new_records(tmp_path):
    served, other = tmp_path / "logs", tmp_path / "other"
    for root, count in ((served, 3), (other, 30)):
        writer = Writer(root, random.Random(f"{SEED}/{count}"))
        for _ in range(count):
            writer.append()
        writer.log_dir.close()
    answers = fetching(served)
    before = fetch(answers, 0, isolation=1)
    shutil.rmtree(served / "t-0")
    gone = fetch(answers, 0)
    assert gone["error_code"] == ErrorCode.KAFKA_STORAGE_ERROR or not gone["records"]
    shutil.copytree(other / "t-0", served / "t-0")
    for isolation in (0, 1):
        row = fetch(answers, 0, isolation=isolation)
        assert row == fetch(fetching(served), 0, isolation=isolation)
        assert row["high_watermark"] == 30 != before["high_watermark"]


class Counted:
    """A log whose state is looked at."""

    def __init__(self):
        self.looks, self.value = 0, 0

    @property
    def state(self):
        self.looks += 1
        return self.value


class AtOnce(Executor):
    """Calls functions in the caller's thread: no time passes."""

    def submit(self, function, /, *arguments):
        done = Future()
        done.set_result(function(*arguments))
        return done


def test_all_who_wait_share_one_look_at_a_log_which_gets_rare():
    async def wait():
        logs = [Counted() for _ in range(3)]
        watch = LogWatch(AtOnce())
        waiting = [
            asyncio.create_task(watch.wait([(log, 0) for log in logs], 60)) for _ in range(200)
        ]
        await asyncio.sleep(1)
        looks = [log.looks for log in logs]
        assert not any(each.done() for each in waiting)
        logs[1].value = 1
        await asyncio.gather(*waiting)
        await asyncio.wait_for(watch.wait([(logs[0], 0)], 0.01), 30)
        watch.close()
        return looks

    # Every 20 ms would be 50 times, and each client by itself 10,000 times.
    with asyncio.Runner(loop_factory=Loop) as runner:
        assert all(1 <= each < 15 for each in runner.run(wait()))
