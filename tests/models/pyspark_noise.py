"""What PySpark prints that is no fault of ours."""

import re

# PySpark's own daemon, which plans reads whatever daemon a session names, prints this now and then,
# when a session ends before a worker has noticed; or only the beginning, where it is ended while it
# prints.
_BROKEN_PIPE = re.compile(
    r"Traceback \(most recent call last\):\n(?:  .*\n)*(?:BrokenPipeError: .*\n|(?:  .*)?\Z)"
)


def without_noise(printed):
    """What is left of a process's standard error."""
    return _BROKEN_PIPE.sub("", printed)
