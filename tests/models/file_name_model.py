"""LocalLog.parseTopicPartitionName, step by step, with every way to match its pattern tried."""

from models.java_text_model import BLANKS, parse_number


def matches(name, suffix):
    r"""Whether ``^(\S+)-(\S+)\.(\S+)<suffix>`` matches the whole name."""
    if not name.endswith(suffix):
        return False
    rest = name[: len(name) - len(suffix)]
    if any(character in BLANKS for character in rest):
        return False
    for dash in range(1, len(rest)):
        for dot in range(dash + 2, len(rest) - 1):
            if rest[dash] == "-" and rest[dot] == ".":
                return True
    return False


def parse_topic_partition_name(name):
    """(topic, partition, suffix); None where it throws."""
    if name == "" or "-" not in name:
        return None
    marks = [mark for mark in ("delete", "future", "stray") if name.endswith("-" + mark)]
    if marks and not matches(name, "-" + marks[0]):
        return None
    rest = name[: name.rindex(".")] if marks else name
    if "-" not in rest:
        return None
    dash = rest.rindex("-")
    topic, digits = rest[:dash], rest[dash + 1 :]
    if topic == "" or digits == "":
        return None
    partition = parse_number(digits, 32)
    return None if partition is None else (topic, partition, marks[0] if marks else "")
