"""What the time index shares with the offset index: the relative offset."""
from libc.stdint cimport int32_t, int64_t

cpdef int32_t relative_offset(int64_t offset, int64_t base_offset) except -1
