"""Every parser is fed its golden inputs cut at each byte, with each bit flipped, and random bytes.

The result is a value, or an error of ours that says where the bytes are corrupt; `fuzz.parsers` has
the parsers. Neighbouring tests check what a parser makes of damage; `tests/fuzz` continues from
here, led by coverage.
"""

import pkgutil
import random

import fuzz.column_parsers
import fuzz.parsers
import pytest
from fuzz.golden_inputs import golden_inputs, inputs_of
from fuzz.parsers import PARSERS, feed
from hypothesis import given, settings
from hypothesis import strategies as st
from models.seed import SEED, examples, one_in

import kafkastore.formats

#: Larger inputs are damaged only in this many places, chosen by the seed.
SOME_PLACES = 120 // one_in(3)
MOST_BITS = 4000 // one_in(3)


#: Modules that parse nothing, or whose parsing others of the registry do: why.
NOT_IN_THE_REGISTRY = {
    "error_codes": "names of numbers",
    "json_text": "files of our own, by tests/changes/test_undo_area_of_others.py",
    "leader_epochs": "takes numbers, by checkpoints",
    "producer_entry": "takes headers, by batch_header",
    "producer_state": "takes headers and entries, by transactions",
    "segment_growth": "takes sets, by append_sets",
    "arrow_memory": "memory",
    "decoders": "by decompression",
    "decompressors": "by decompression",
    "record_buffers": "buffers of our own",
    "batch_builder": "writes, by record_builder",
    "crc": "any bytes are right",
    "entries": "types",
    "index_builder": "takes headers, by batch_header",
    "index_format": "by offset_index and time_index",
    "batch_sequence": "takes headers and entries, by batch_header and the indexes",
    "index_growth": "numbers",
    "java_text": "lines and numbers, by checkpoints and file_names",
    "description": "texts of our own",
    "altering": "descriptions, by apis",
    "describing": "descriptions, by apis",
    "groups": "descriptions, by apis",
    "reading": "descriptions, by apis",
    "message_codec": "fields, by internal_topics and list_offsets",
    "message_table": "fields, by internal_topics and list_offsets",
    "record_tables": "keys, values and frames, by internal_topics",
    "murmur2": "any bytes are right",
    "unknown_numbers": "numbers",
    "recompression": "reads by record_batch, writes by record_builder",
    "record_rows": "columns, by record_builder",
}


@pytest.fixture(scope="module")
def inputs(golden):
    return golden_inputs(lambda version, case: golden(version, case, "answers").root)


def places(count, most):
    """All of `count` places, or a number of them chosen by the seed."""
    chance = random.Random(f"{SEED} {count}")
    return range(count) if count <= most else chance.sample(range(count), most)


@pytest.mark.parametrize("name", PARSERS)
def test_golden_inputs_are_read(name, inputs):
    errors = [feed(name, data) for data in inputs_of(name, inputs)]
    assert None in errors


@pytest.mark.parametrize("name", PARSERS)
def test_an_input_cut_at_any_byte_is_a_value_or_an_error_with_its_position(name, inputs):
    for data in inputs_of(name, inputs):
        for end in places(len(data), SOME_PLACES):
            feed(name, data[:end])


@pytest.mark.parametrize("name", PARSERS)
def test_an_input_with_any_bit_flipped_is_a_value_or_an_error_with_its_position(name, inputs):
    bits_left = MOST_BITS
    for data in inputs_of(name, inputs):
        bits = places(8 * len(data), max(bits_left, SOME_PLACES // 4))
        bits_left -= len(bits)
        for bit in bits:
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            feed(name, bytes(damaged))


@pytest.mark.parametrize("name", PARSERS)
def test_random_bytes_are_a_value_or_an_error_with_its_position(name, inputs):
    golden = inputs_of(name, inputs)
    # Alone, and as a piece of a golden input: headers let few random bytes through.
    pieces = st.builds(
        lambda data, at, piece: data[: at % (len(data) + 1)] + piece + data[at % 97 :],
        st.sampled_from(golden),
        st.integers(0, 2000),
        st.binary(max_size=20),
    )

    @settings(max_examples=examples(60))
    @given(st.binary(max_size=200) | pieces)
    def check(data):
        feed(name, data)

    check()


def test_every_module_of_formats_is_in_the_registry():
    path, prefix = kafkastore.formats.__path__, "kafkastore.formats."
    found = pkgutil.walk_packages(path, prefix)
    modules = {module.name.rpartition(".")[2] for module in found if not module.ispkg}
    used = {*vars(fuzz.parsers), *vars(fuzz.column_parsers)}
    assert modules - used == NOT_IN_THE_REGISTRY.keys() - used
