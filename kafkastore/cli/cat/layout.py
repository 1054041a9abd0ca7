"""The format of the output of ``kafkastore cat``, as its options request it."""
from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import tzinfo
from pathlib import Path
from typing import BinaryIO, NamedTuple

import click

from kafkastore.cli.cat.column_writer import COLUMN_FORMS, ColumnWriter
from kafkastore.cli.cat.format_string import format_string
from kafkastore.cli.cat.line_formats import (
    LineFormat,
    LineWriter,
    csv_format,
    json_format,
    text_format,
)
from kafkastore.cli.cat.output_pattern import PatternWriter, fields_of
from kafkastore.cli.cat.record_writer import RecordWriter
from kafkastore.cli.output.output_file import check_output, is_stdout, open_output
from kafkastore.cli.output.output_files import OutputFiles
from kafkastore.errors import MissingExtraError
from kafkastore.store.log_store import LogStore

FORMS = ("text", "json", "csv", *COLUMN_FORMS)
_FORM_BY_SUFFIX = {
    ".parquet": "parquet", ".arrow": "arrow", ".arrows": "arrows", ".csv": "csv", ".json": "json",
    ".jsonl": "json", ".ndjson": "json", ".txt": "text", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip
#: Names of formats that are not written; text under such a name would deceive.
_OTHER_FORMATS = {
    ".avro", ".bson", ".cbor", ".db", ".delta", ".duckdb", ".h5", ".hdf5", ".html", ".msgpack",
    ".npy", ".npz", ".ods", ".orc", ".pb", ".pickle", ".pkl", ".proto", ".sql", ".sqlite",
    ".sqlite3", ".tsv", ".xls", ".xlsx", ".xml", ".yaml", ".yml",
}  # fmt: skip
#: Compression is for other programs.
_COMPRESSED = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".zip")
#: What ``-o`` means for kcat: beginning, end, stored, N, -N, s@TIMESTAMP, e@TIMESTAMP.
_KCAT_OFFSET = re.compile(r"beginning|end|stored|-?[0-9]+|[se]@[0-9]+")


class OutputLayout(NamedTuple):
    """A format, and what it shows; `template` is that of ``-f``."""

    form: str
    template: str | None
    headers: bool
    zone: tzinfo | None
    threads: int

    def line_format(self, *, is_terminal: bool) -> LineFormat:
        """Return the format of a line; raise `click.UsageError` for a wrong template."""
        if self.template is not None:
            return format_string(self.template, for_terminal=is_terminal)
        if self.form == "json":
            return json_format(headers=self.headers, for_terminal=is_terminal)
        if self.form == "csv":
            return csv_format(headers=self.headers, for_terminal=is_terminal)
        in_colour = is_terminal and _has_colours()
        return text_format(headers=self.headers, zone=self.zone, in_colour=in_colour)

    def writer(self, file: BinaryIO) -> RecordWriter:
        """Return a writer to a file."""
        if self.form in COLUMN_FORMS:
            return ColumnWriter(file, self.form, headers=self.headers, threads=self.threads)
        return LineWriter(file, self.line_format(is_terminal=file.isatty()))

    def read_as(self) -> tuple[tuple[str, ...], dict[str, object]]:
        """Return the columns to read, and other options of reading."""
        if self.form in COLUMN_FORMS:
            return ColumnWriter.reading_of(self.form, headers=self.headers)
        return self.line_format(is_terminal=False).columns, {}

    @contextmanager
    def opened(
        self, output: Path | None, store: LogStore, *, follow: bool
    ) -> Iterator[RecordWriter]:
        """Open a writer to an output, which is complete after the block."""
        if output is None or is_stdout(output):
            with closing(self.writer(sys.stdout.buffer)) as writer:
                yield writer
        elif fields_of(output):
            one_by_one = self._replace(threads=1).writer  # there may be many
            with OutputFiles(store) as files, closing(
                PatternWriter(
                    output, files, one_by_one, self.zone, *self.read_as(),
                    in_arrow=self.form in COLUMN_FORMS, returns=follow,
                )
            ) as writer:
                yield writer
        else:
            check_output(output, store)
            with open_output(output) as file, closing(self.writer(file)) as writer:
                yield writer


def choose_layout(
    form: str | None,
    template: str | None,
    output: Path | None,
    *,
    as_json: bool,
    headers: bool,
    zone: tzinfo | None,
    threads: int,
) -> OutputLayout:
    """Return the format that the options request, or raise `click.UsageError`."""
    if as_json and form not in (None, "json"):
        raise click.UsageError(f"--json and --format {form} cannot be combined")
    if template is not None and (as_json or form is not None):
        raise click.UsageError("-f has the format of a line; leave out --format and --json")
    if output is not None:
        if _KCAT_OFFSET.fullmatch(str(output)):
            raise click.UsageError(
                f"-o is the output file, got {str(output)!r}; offsets are --from-offset and "
                f"--tail, times --from and --until; the file of this name is ./{output}"
            )
        fields_of(output)
    suffix = "" if output is None else output.suffix.lower()
    if suffix in _COMPRESSED:
        raise click.UsageError(
            f"{output} would not be compressed: write a .parquet file, or pipe lines to a program "
            f"that compresses"
        )
    if suffix in _OTHER_FORMATS and form is template is None and not as_json:
        raise click.UsageError(
            f"{output} would not be in the format {suffix}: known endings are "
            f"{', '.join(sorted(_FORM_BY_SUFFIX))}; --format writes one of them to any name"
        )
    by_suffix = _FORM_BY_SUFFIX.get(suffix, "text")
    if template is not None and by_suffix in COLUMN_FORMS:
        raise click.UsageError(
            f"-f has the format of a line, and {output} is not text: leave out -f"
        )
    chosen = "json" if as_json else form or by_suffix
    shown = "text" if template is not None else chosen
    layout = OutputLayout(shown, template, headers, zone, threads)
    is_shown = (output is None or is_stdout(output)) and sys.stdout.isatty()
    if layout.form in COLUMN_FORMS and is_shown:
        raise click.UsageError(f"--format {chosen} is not for terminals: give -o FILE, or a pipe")
    if layout.form in COLUMN_FORMS:
        MissingExtraError.check("pyarrow", "arrow")
    if template is not None:
        layout.line_format(is_terminal=False)
    return layout


def _has_colours() -> bool:
    """Return whether a terminal is to show colours: https://no-color.org."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in (None, "", "dumb")
