"""Unpack archives of log directories with modification times in ns.

Modification times are data: a broker uses that of the ``.log`` as the time of a segment without
time index entries. An archive has them as decimal text in its pax headers; `tarfile` parses that
text as a float, which is too imprecise for nanoseconds, so the text is parsed again here.
"""
from __future__ import annotations

import os
import tarfile
from decimal import Decimal
from pathlib import Path


def modified_ns(member: tarfile.TarInfo) -> int:
    """Return the exact modification time of a member, in ns since 1970."""
    return int(Decimal(member.pax_headers.get("mtime", str(int(member.mtime)))) * 1_000_000_000)


def unpack_archive(archive: Path, destination: Path) -> None:
    """Unpack a tar archive into a directory, with modification times.

    Raises tarfile.FilterError if a member is not a plain file or directory below `destination`.
    """
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
        # Python 3.11.0 to 3.11.3 have no filters; the archives are the package's own.
        if hasattr(tarfile, "data_filter"):
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(destination, members)
    for member in members:
        ns = modified_ns(member)
        os.utime(destination / member.name, ns=(ns, ns))
