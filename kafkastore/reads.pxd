"""Fetch bytes before they are read, without the GIL; cheap for local files."""
from libc.stdint cimport int64_t

# Raise the error that `have` met in this thread.
cpdef check_fetched()

# Fetch the bytes [start, end) of an open file; False if that fails: `check_fetched` raises why.
cdef bint have(int descriptor, int64_t start, int64_t end) noexcept nogil

cdef bint is_remote_file(int descriptor) noexcept nogil
