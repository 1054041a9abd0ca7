"""What is asked before bytes of a log directory's file are read: that they are there.

Files of remote stores are local ones, as large as the object, into which bytes are put when they
are asked for. Whoever reads calls `need` first, or `have` where there is no GIL. As long as no
remote store is open, either looks at one variable and returns.
"""
from libc.stdint cimport int64_t

from threading import get_ident

cdef bint is_watching = False
_find = None
_failures = {}


def watch(find):
    """Ask from now on.

    Parameters
    ----------
    find : callable
        Returns the `SparseFile` that a descriptor is open on; None for any other file.
    """
    global is_watching, _find
    _find = find
    is_watching = True


def need(int descriptor, int64_t start, int64_t end):
    """Have bytes of an open file in it before they are read.

    Parameters
    ----------
    descriptor : int
        Of any file.
    start, end : int
        Byte positions, inclusive and exclusive; behind the end of the file there is nothing to do.

    Raises
    ------
    RemoteStoreError
        If they can't be had.
    """
    if is_watching:
        file = _find(descriptor)
        if file is not None:
            file.need(start, end)


def is_remote(int descriptor):
    """Tell whether an open file is one of a remote store: its holes are bytes that are not here."""
    return bool(is_watching and _find(descriptor) is not None)


def check():
    """Raise what `have` failed with in this thread.

    Raises
    ------
    RemoteStoreError
        As `need` would have.
    """
    if is_watching:
        failure = _failures.pop(get_ident(), None)
        if failure is not None:
            raise failure


cdef bint have(int descriptor, int64_t start, int64_t end) noexcept nogil:
    if not is_watching:
        return True
    return _have(descriptor, start, end)


cdef bint _have(int descriptor, int64_t start, int64_t end) noexcept with gil:
    try:
        need(descriptor, start, end)
    except BaseException as failure:  # Ctrl-C too: raised by `check`, in the same thread
        _failures[get_ident()] = failure
        return False
    return True


cdef bint is_remote_file(int descriptor) noexcept nogil:
    if not is_watching:
        return False
    return _is_remote(descriptor)


cdef bint _is_remote(int descriptor) noexcept with gil:
    try:
        return is_remote(descriptor)
    except BaseException as failure:
        _failures[get_ident()] = failure
        return False
