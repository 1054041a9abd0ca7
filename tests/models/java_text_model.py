"""Java's treatment of text, character by character, after the JDK's loops."""

import unicodedata

BLANKS = " \t\n\x0b\f\r"


def parse_number(text, bits):
    """Integer.parseInt or Long.parseLong; None where they throw."""
    negative = text[:1] == "-"
    digits = text[1:] if text[:1] in ("+", "-") else text
    if digits == "":
        return None
    number = 0
    for character in digits:
        decimal = unicodedata.decimal(character, None)
        if decimal is None or ord(character) > 0xFFFF:
            return None
        number = 10 * number + decimal
    number = -number if negative else number
    return number if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def split_at_blanks(line):
    r"""Pattern.compile("\\s+").split."""
    parts, part, at = [], "", 0
    while at < len(line):
        if line[at] not in BLANKS:
            part += line[at]
            at += 1
            continue
        while at < len(line) and line[at] in BLANKS:
            at += 1
        parts.append(part)
        part = ""
    if not parts:
        return [line]  # no blank: the input itself, empty or not
    parts.append(part)
    while parts and parts[-1] == "":
        parts.pop()
    return parts


def read_lines(text):
    """BufferedReader.readLine until null."""
    lines, line, at = [], None, 0
    while at < len(text):
        character = text[at]
        at += 1
        line = line or ""
        if character in "\r\n":
            if character == "\r" and text[at : at + 1] == "\n":
                at += 1
            lines.append(line)
            line = None
        else:
            line += character
    return lines if line is None else [*lines, line]


def read_checkpoint(data, kinds):
    """CheckpointFile.read with a formatter of fields of these kinds ("text", 32, 64).

    A list of entries; None where it throws.
    """
    try:
        lines = read_lines(data.decode())
    except UnicodeDecodeError:
        return None
    if not lines:
        return []
    version = parse_number(lines[0], 32)
    if version != 0:
        return None
    if len(lines) == 1:
        return []
    expected = parse_number(lines[1], 32)
    if expected is None:
        return None
    entries = []
    for line in lines[2:]:
        parts = split_at_blanks(line)
        if len(parts) != len(kinds):
            return None
        entry = tuple(
            part if kind == "text" else parse_number(part, kind)
            for part, kind in zip(parts, kinds, strict=True)
        )
        if None in entry:
            return None
        entries.append(entry)
    return entries if len(entries) == expected else None


def load_properties(text):
    """Properties.load; None where it throws."""
    properties = {}
    for line in _logical_lines(text):
        key_length, value_start, has_separator, preceding_backslash = 0, len(line), False, False
        while key_length < len(line):
            character = line[key_length]
            if character in "=:" and not preceding_backslash:
                value_start, has_separator = key_length + 1, True
                break
            if character in " \t\f" and not preceding_backslash:
                value_start = key_length + 1
                break
            preceding_backslash = character == "\\" and not preceding_backslash
            key_length += 1
        while value_start < len(line):
            character = line[value_start]
            if character not in " \t\f":
                if has_separator or character not in "=:":
                    break
                has_separator = True
            value_start += 1
        key, value = _convert(line[:key_length]), _convert(line[value_start:])
        if key is None or value is None:
            return None
        properties[key] = value
    return properties


def _logical_lines(text):
    """LineReader.readLine until -1."""
    line, at = "", 0
    skip_white, is_comment, is_new = True, False, True
    appended_begin, preceding_backslash = False, False
    while at < len(text):
        character = text[at]
        at += 1
        if skip_white:
            if character in " \t\f":
                continue
            if not appended_begin and character in "\r\n":
                continue
            skip_white = appended_begin = False
        if is_new:
            is_new = False
            is_comment = character in "#!"
        if character not in "\r\n":
            line += character
            preceding_backslash = character == "\\" and not preceding_backslash
            continue
        if is_comment or line == "":
            is_new, skip_white, is_comment, line = True, True, False, ""
            preceding_backslash = False
            continue
        if preceding_backslash:
            line = line[:-1]
            skip_white = appended_begin = True
            preceding_backslash = False
            if character == "\r" and text[at : at + 1] == "\n":
                at += 1
            continue
        yield line
        line, skip_white, is_new = "", True, True
    if line and not is_comment:
        yield line[:-1] if preceding_backslash else line


def _convert(text):
    """loadConvert: the escapes; None where it throws."""
    out, at = "", 0
    while at < len(text):
        character = text[at]
        at += 1
        if character != "\\":
            out += character
            continue
        if at == len(text):
            return out + "\\"  # cannot be: a line does not end in an odd backslash
        character = text[at]
        at += 1
        if character == "u":
            digits = text[at : at + 4]
            if len(digits) < 4 or any(digit not in "0123456789abcdefABCDEF" for digit in digits):
                return None
            out += chr(int(digits, 16))
            at += 4
        else:
            out += {"t": "\t", "r": "\r", "n": "\n", "f": "\f"}.get(character, character)
    return out
