"""Output of PySpark that does not indicate an error here."""

import re

# PySpark's own daemon plans reads even if a session names another daemon. It sometimes prints this
# when a session ends before a worker notices, or only the beginning if it is ended meanwhile.
_BROKEN_PIPE = re.compile(
    r"Traceback \(most recent call last\):\n(?:  .*\n)*(?:BrokenPipeError: .*\n|(?:  .*)?\Z)"
)


def without_noise(printed):
    """A process's standard error without this noise."""
    return _BROKEN_PIPE.sub("", printed)
