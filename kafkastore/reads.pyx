"""Fetch bytes of a log directory's file before they are read.

Files of remote stores are local ones, as large as the object, into which bytes are put when they
are asked for. Every reader calls `fetch_bytes` first, or `have` where there is no GIL. As long as
no remote store is open, both read one variable and return.
"""
from libc.stdint cimport int64_t

from threading import get_ident


cdef extern from *:
    """
    #include <unistd.h>
    #ifdef __APPLE__
    #include <stdint.h>
    #include <sys/sysctl.h>
    static long level2_cache(void) {
        int64_t bytes = 0;
        size_t size = sizeof bytes;
        return sysctlbyname("hw.l2cachesize", &bytes, &size, 0, 0) ? 0 : (long)bytes;
    }
    #elif defined _SC_LEVEL2_CACHE_SIZE
    static long level2_cache(void) { return sysconf(_SC_LEVEL2_CACHE_SIZE); }
    #else
    static long level2_cache(void) { return 0; }
    #endif
    """
    long level2_cache() noexcept nogil


cdef bint is_watching = False
_find = None
_failures = {}


def level2_cache_bytes():
    """Return the size of a core's second cache; 0 if the system does not say it."""
    return max(level2_cache(), 0)


def watch(find):
    """Use `find` from now on to get the `SparseFile` of a descriptor, or None."""
    global is_watching, _find
    _find = find
    is_watching = True


def fetch_bytes(int descriptor, int64_t start, int64_t end):
    """Fetch the bytes [start, end) of an open file, up to its end.

    Raises RemoteStoreError if that fails.
    """
    if is_watching:
        file = _find(descriptor)
        if file is not None:
            file.need(start, end)


def is_remote(int descriptor):
    """Return whether an open file is remote: its holes are bytes not fetched yet."""
    return bool(is_watching and _find(descriptor) is not None)


cpdef check_fetched():
    """Raise the error that `have` met in this thread."""
    if is_watching:
        failure = _failures.pop(get_ident(), None)
        if failure is not None:
            raise failure


def drop_failure():
    """Forget the error that `have` met in this thread; the next reader meets it.

    An interrupt is raised.
    """
    if is_watching:
        failure = _failures.pop(get_ident(), None)
        if failure is not None and not isinstance(failure, Exception):
            raise failure


cdef bint have(int descriptor, int64_t start, int64_t end) noexcept nogil:
    if not is_watching:
        return True
    return _have(descriptor, start, end)


cdef bint _have(int descriptor, int64_t start, int64_t end) noexcept with gil:
    try:
        fetch_bytes(descriptor, start, end)
    except BaseException as failure:  # Ctrl-C too: raised by `check_fetched`, in the same thread
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
