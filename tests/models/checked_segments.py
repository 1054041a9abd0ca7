"""The checks of a partition's segments one after the other, without checks across them."""

import errno
import os

import kafkastore
from kafkastore.checks.findings import Severity
from kafkastore.checks.segment_check import SegmentCheck


def checks_of(logs, name="t-0", *, reads_log=True):
    """[(check, findings)] of each segment, each with the one before."""
    log = kafkastore.open(logs)[name]
    done, before, next_offset = [], None, 0
    for segment in log.segments:
        check = SegmentCheck(log, segment, next_offset, reads_log=reads_log, before=before)
        done.append((check, list(check.findings())))
        before, next_offset = check, check.next_offset
    return done


def findings_of(logs, name="t-0", *, reads_log=True, with_style=False):
    """The findings of all segments, above style."""
    return [
        finding
        for _, findings in checks_of(logs, name, reads_log=reads_log)
        for finding in findings
        if with_style or finding.severity != Severity.STYLE
    ]


def lose(monkeypatch, path, start, end):
    """Let a device give no bytes of a file from one to another: reads up to them are short."""
    preadv, pread = os.preadv, os.pread
    lost = path.stat().st_ino

    def readable(descriptor, size, position):
        if os.fstat(descriptor).st_ino != lost or position >= end:
            return size
        if position >= start:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return min(size, start - position)

    monkeypatch.setattr(os, "pread", lambda descriptor, size, position: pread(
        descriptor, readable(descriptor, size, position), position))
    monkeypatch.setattr(os, "preadv", lambda descriptor, buffers, position: preadv(
        descriptor, [buffers[0][: readable(descriptor, len(buffers[0]), position)]], position))
