"""Archives of log directories, unpacked with every mtime to the nanosecond.

mtimes are data in a log directory: a broker dates a segment without time index entries by its
``.log`` file's mtime. An archive keeps them as decimal text in its pax headers; `tarfile` reads
that text as a float, which cannot hold today's nanoseconds, so the text is parsed again here.
"""
from __future__ import annotations

import os
import tarfile
from decimal import Decimal
from pathlib import Path


def modified_ns(member: tarfile.TarInfo) -> int:
    """Return a member's mtime, exactly.

    Parameters
    ----------
    member : tarfile.TarInfo
        As read from an archive.

    Returns
    -------
    int
        Nanoseconds since 1970.
    """
    return int(Decimal(member.pax_headers.get("mtime", str(int(member.mtime)))) * 1_000_000_000)


def unpack_archive(archive: Path, destination: Path) -> None:
    """Unpack a tar archive into a directory and date every file and directory as the archive says.

    Parameters
    ----------
    archive : path
        A tar file, compressed by anything `tarfile` knows.
    destination : path
        An existing directory. Members that would land outside of it are refused.

    Raises
    ------
    tarfile.FilterError
        If a member is not a plain file or directory below `destination`.
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
