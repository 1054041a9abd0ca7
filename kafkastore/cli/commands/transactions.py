"""``kafkastore transactions``: the transactions that are open at the end of logs."""
from __future__ import annotations

import shlex
from collections.abc import Sequence

from kafkastore.cli.output.control_characters import print_text
from kafkastore.cli.output.failures import print_note
from kafkastore.cli.output.tables import format_count, format_value, print_table
from kafkastore.cli.store_command import StoreCall, store_command
from kafkastore.formats.state.file_names import TopicPartition
from kafkastore.jobs.transactions import TransactionsJob, transaction_row
from kafkastore.use_cases.open_transactions import OpenTransaction, read_coordinators


@store_command("tz", "spark")
def command(call: StoreCall) -> int:
    """Show the transactions that are open at the end of logs, and how to abort them.

    Consumers with read_committed wait for the oldest open transaction of a partition. One that its
    coordinator does not know hangs. The coordinators' states are in __transaction_state, which has
    to be among the directories.
    """
    unreadable: dict[TopicPartition, Exception] = {}
    known = read_coordinators(call.selection.store, unreadable)
    for partition, error in unreadable.items():
        call.problems.add(partition, error)
    if known is None:
        print_note(
            "no partition of __transaction_state is here: what the coordinators know is not shown"
        )
    elif not known.is_complete:
        print_note(
            "not all partitions of __transaction_state are here: whether a transaction is hanging "
            "is unknown if no coordinator here knows its producer"
        )
    job = TransactionsJob(known)
    found = call.run(job, call.items(job), "looking for open transactions")
    if not call.as_json:
        _print(call, [each for of_partition in found for each in of_partition], len(found))
    return call.problems.exit_code


def _print(call: StoreCall, found: Sequence[OpenTransaction], partitions: int) -> None:
    """Print a table, and a command for each transaction."""
    if found:
        print_table(
            ["partition", "first offset", "since", "producer", "transactional id", "coordinator",
             "last stable offset"],
            (
                [
                    str(each.topic_partition),
                    str(each.first_offset),
                    call.format_time(each.first_timestamp),
                    f"{each.producer_id}/{each.producer_epoch}",
                    format_value(transaction_row(each)["transactional_id"]),
                    _coordinator(each),
                    "held here" if each.holds_last_stable_offset else "-",
                ]
                for each in found
            ),
            right="first offset",
        )
        print("\nTo abort them in a running cluster:")
    for each in found:
        topic, partition = each.topic_partition
        print_text(
            f"  kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic "
            f"{shlex.quote(topic)} --partition {partition} --start-offset {each.first_offset}"
        )
    count = format_count(len(found), "open transaction")
    print(f"{count} in {format_count(partitions, 'partition')}")


def _coordinator(found: OpenTransaction) -> str:
    """Describe what the coordinator knows of a transaction."""
    if found.is_hanging is None:
        return "-"
    state = format_value(transaction_row(found)["coordinator_state"])
    return f"{state}, hanging" if found.is_hanging else state
