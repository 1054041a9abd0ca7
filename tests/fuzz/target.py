"""One fuzz target in a separate process, which `campaign` starts: ``-m fuzz.target NAME ...``.

What follows the name are libFuzzer's options, corpus folders, or files to try again.
"""

import signal
import sys
import time
from functools import partial

import atheris
import self_check

with atheris.instrument_imports(include=["kafkastore.formats"]):
    from fuzz.parsers import PARSERS, feed
    from fuzz.reading import exactly


def find_magic(data):
    assert not self_check.is_magic(exactly(data)), "the magic bytes were found"


def read_past_end(data):
    if len(data) > 2:
        self_check.read_past_end(exactly(data))


def hang(data):
    while len(data) > 2:
        time.sleep(0.1)


def use_much_memory(data):
    if len(data) > 2:
        bytearray(2**30)


#: Parsers with a fault: the fuzzer must find each.
SELF_CHECKS = {
    function.__name__: function for function in (find_magic, read_past_end, hang, use_much_memory)
}


def target(name):
    assert name in SELF_CHECKS or name in PARSERS
    parse = SELF_CHECKS.get(name, partial(feed, name))

    def parse_one(data):
        try:
            parse(data)
        except BaseException:
            # libFuzzer's alarm, at which Python ends as it exits: the input would not be kept.
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise

    return parse_one


if __name__ == "__main__":
    # libFuzzer takes exit codes and signals as its own; atheris has one inside.
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target(sys.argv[1]), internal_libfuzzer=True)
    atheris.Fuzz()
