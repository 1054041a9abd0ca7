"""What code without the GIL asks before it reads; a look at one variable while all is local."""
from libc.stdint cimport int64_t

cdef bint is_watching

# Have the bytes [start, end) of an open file in it; False, with more to say by `check`, if they
# can't be had.
cdef bint have(int descriptor, int64_t start, int64_t end) noexcept nogil

cdef bint is_remote_file(int descriptor) noexcept nogil
