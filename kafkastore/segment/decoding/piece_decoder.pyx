"""Decode pieces of logs in several threads that never need the GIL.

A piece is a range of bytes of a log. Threads take the first piece that no other one decodes, fill
columns with its next rows, and go on. The owner takes filled columns in the order of the pieces; it
decodes too while it would wait, and what it wants next before anything else::

    pieces:     first        second             third
    filled:     taken 3 4    1 2 (3 is filled   (a thread begins,
                             by a thread)        if columns are idle)

No thread waits for the owner for long: without work it ends, and the owner starts another.
"""
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from kafkastore.formats.records.record_columns cimport RecordColumns
from kafkastore.formats.state.aborted_batches cimport AbortedBatches
from kafkastore.segment.decoding.usual_batches cimport (
    IS_OUT_OF_MEMORY,
    IS_PAUSED,
    Progress,
    Stop,
    begin_at,
    decode_usual,
)

from kafkastore.reads import drop_failure


cdef extern from *:
    """
    #include <pthread.h>
    #include <sys/time.h>
    /* Wait for a change, or some milliseconds; false if nothing changed. */
    static int kafkastore_wait(pthread_cond_t* changed, pthread_mutex_t* mutex, long ms) {
        struct timeval now;
        struct timespec until;
        gettimeofday(&now, NULL);
        until.tv_sec = now.tv_sec + ms / 1000;
        until.tv_nsec = now.tv_usec * 1000L + ms % 1000 * 1000000L;
        if (until.tv_nsec >= 1000000000L) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000L;
        }
        return pthread_cond_timedwait(changed, mutex, &until) == 0;
    }
    #define kafkastore_is_set(flag) __atomic_load_n(flag, __ATOMIC_ACQUIRE)
    #define kafkastore_set(flag) __atomic_store_n(flag, 1, __ATOMIC_RELEASE)
    """
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass
    int pthread_mutex_init(pthread_mutex_t*, void*) nogil
    int pthread_mutex_destroy(pthread_mutex_t*) nogil
    int pthread_mutex_lock(pthread_mutex_t*) nogil
    int pthread_mutex_unlock(pthread_mutex_t*) nogil
    int pthread_cond_init(pthread_cond_t*, void*) nogil
    int pthread_cond_destroy(pthread_cond_t*) nogil
    int pthread_cond_broadcast(pthread_cond_t*) nogil
    bint wait_for_change "kafkastore_wait"(pthread_cond_t*, pthread_mutex_t*, long ms) nogil
    bint is_set "kafkastore_is_set"(char*) nogil
    void set_flag "kafkastore_set"(char*) nogil

cdef enum:
    NONE = -1
    # The owner looks for signals, threads for the end, at least so often.
    MOST_WAITING_MS = 20
    # A thread without work ends after so many waits.
    MOST_IDLE_WAITS = 5

cdef enum PieceState:
    IS_READY                 # a thread may decode it, or go on
    IS_RUNNING
    IS_DONE

cdef struct Piece:
    Progress progress
    Stop stop
    PieceState state
    int64_t start_offset, end_offset   # of the records
    int first_filled, last_filled


cdef class PieceDecoder:
    """Decode pieces of logs in `threads`, of which the owner is one.

    `columns` are filled and used again: some are filled and not taken yet. All must have the same
    settings but for the offsets, which are set for each piece. At most `most_pieces` are added and
    not over.
    """

    cdef Piece* pieces       # a ring
    cdef list kept           # of each piece: what its C structures refer to
    cdef int capacity, first, count
    cdef list columns
    cdef PyObject** slots    # the columns
    cdef int* following      # of each slot: the one after it in a list; NONE at the end
    cdef int idle, idle_count
    cdef int threads, running
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t changed
    cdef char is_stopped
    cdef bint has_lock

    def __cinit__(self, columns, *, int threads, int most_pieces):
        cdef int slot
        self.columns = list(columns)
        self.kept = [None] * most_pieces
        self.threads, self.capacity = threads, most_pieces
        self.idle_count = len(self.columns)
        self.pieces = <Piece*> calloc(most_pieces, sizeof(Piece))
        self.slots = <PyObject**> calloc(self.idle_count, sizeof(PyObject*))
        self.following = <int*> calloc(self.idle_count, sizeof(int))
        if self.pieces == NULL or self.slots == NULL or self.following == NULL:
            raise MemoryError
        pthread_mutex_init(&self.mutex, NULL)
        pthread_cond_init(&self.changed, NULL)
        self.has_lock = True
        for slot in range(self.idle_count):
            self.slots[slot] = <PyObject*> (<RecordColumns?> self.columns[slot])
            self.following[slot] = slot - 1
        self.idle = self.idle_count - 1

    def __dealloc__(self):
        if self.has_lock:
            pthread_cond_destroy(&self.changed)
            pthread_mutex_destroy(&self.mutex)
        free(self.pieces)
        free(self.slots)
        free(self.following)

    def add(self, int descriptor, int64_t position, int64_t end, int64_t size, *,
            int64_t smallest, int64_t largest, int64_t start_offset, int64_t end_offset,
            int64_t last_offset, AbortedBatches aborted, bint verify_crc, bint check_all,
            Py_ssize_t read_size):
        """Add a piece after the others.

        Returns whether to start another thread, which calls `work`.

        `start_offset` and `end_offset` limit the records; the rest is as for `read_usual`, with
        `last_offset` for its `end_offset`. The descriptor must stay open until the piece is over.
        """
        cdef int number = (self.first + self.count) % self.capacity
        cdef Piece* piece = &self.pieces[number]
        cdef bint is_wanted
        if self.count == self.capacity:
            raise RuntimeError("too many pieces")
        self.kept[number] = aborted
        piece.progress = begin_at(descriptor, position, end, size, smallest, largest, last_offset,
                                  aborted, verify_crc, check_all, read_size)
        with nogil:
            pthread_mutex_lock(&self.mutex)
            piece.start_offset = start_offset
            piece.end_offset = end_offset
            piece.state = IS_READY
            piece.first_filled = piece.last_filled = NONE
            self.count += 1
            is_wanted = self.running < self.threads - 1
            self.running += is_wanted
            pthread_cond_broadcast(&self.changed)
            pthread_mutex_unlock(&self.mutex)
        return is_wanted

    def work(self):
        """Decode in this thread until there is nothing to do."""
        cdef int number = NONE, slot, waits = 0
        with nogil:
            pthread_mutex_lock(&self.mutex)
            while not is_set(&self.is_stopped) and waits <= MOST_IDLE_WAITS:
                number = self.find_ready(number, 1)
                slot = self.take_idle(number)
                if slot == NONE:
                    number = NONE
                    if wait_for_change(&self.changed, &self.mutex, MOST_WAITING_MS):
                        continue
                    waits += 1
                else:
                    waits = 0
                    self.fill(number, slot)
            self.running -= 1
            pthread_mutex_unlock(&self.mutex)
        drop_failure()

    def next(self, take):
        """Return what `take` makes of the next rows of the first piece; None at its end.

        `take` empties columns.
        """
        cdef int slot
        while True:
            with nogil:
                slot = self.next_filled()
            drop_failure()
            if slot == NONE:
                return None
            if slot < NONE:
                PyErr_CheckSignals()
                continue
            try:
                return take(<object> self.slots[slot])
            finally:
                with nogil:
                    pthread_mutex_lock(&self.mutex)
                    self.make_idle(slot)
                    pthread_mutex_unlock(&self.mutex)

    @property
    def first_offset(self):
        """The first offset of the first piece, of which `next` returned rows or None."""
        return self.pieces[self.first].progress.first_offset

    def end_first(self):
        """Remove the first piece, which is at its end.

        Returns the position after its batches, and the offset after them; the position is the same
        if it has none.
        """
        cdef Piece* piece = &self.pieces[self.first]
        if piece.state != IS_DONE or piece.first_filled != NONE:
            raise RuntimeError("the piece is not over")
        if piece.stop == IS_OUT_OF_MEMORY:
            raise MemoryError
        with nogil:
            pthread_mutex_lock(&self.mutex)
            self.first = (self.first + 1) % self.capacity
            self.count -= 1
            pthread_mutex_unlock(&self.mutex)
        return piece.progress.position, piece.progress.smallest

    def stop(self):
        """Let all threads end soon, without waiting for them."""
        set_flag(&self.is_stopped)

    def wake(self):
        """Let threads look at once whether they were stopped."""
        with nogil:
            pthread_mutex_lock(&self.mutex)
            pthread_cond_broadcast(&self.changed)
            pthread_mutex_unlock(&self.mutex)

    cdef int next_filled(self) noexcept nogil:
        """Return filled columns of the first piece; NONE at its end, less for signals."""
        cdef Piece* piece = &self.pieces[self.first]
        cdef int found = NONE, number, slot
        pthread_mutex_lock(&self.mutex)
        while True:
            if piece.first_filled != NONE:
                found = piece.first_filled
                piece.first_filled = self.following[found]
                break
            if piece.state == IS_DONE:
                break
            number = self.find_ready(NONE, 0)
            slot = self.take_idle(number)
            if slot != NONE:
                self.fill(number, slot)
            elif not wait_for_change(&self.changed, &self.mutex, MOST_WAITING_MS):
                found = NONE - 1
                break
        pthread_mutex_unlock(&self.mutex)
        return found

    cdef int find_ready(self, int preferred, int begin) noexcept nogil:
        """Return a piece to decode: the preferred one, or the first from a place on."""
        cdef int i, number
        if (preferred != NONE and self.pieces[preferred].state == IS_READY
                and (preferred - self.first + self.capacity) % self.capacity < self.count):
            return preferred
        for i in range(self.count):
            number = (self.first + (begin + i) % self.count) % self.capacity
            if self.pieces[number].state == IS_READY:
                return number
        return NONE

    cdef int take_idle(self, int number) noexcept nogil:
        """Return columns for a piece; the last idle ones are only for the first piece."""
        cdef int slot = self.idle
        if number == NONE or (self.idle_count <= 1 and number != self.first):
            return NONE
        if slot != NONE:
            self.idle = self.following[slot]
            self.idle_count -= 1
        return slot

    cdef void make_idle(self, int slot) noexcept nogil:
        """Let columns be filled again."""
        self.following[slot] = self.idle
        self.idle = slot
        self.idle_count += 1
        pthread_cond_broadcast(&self.changed)

    cdef void fill(self, int number, int slot) noexcept nogil:
        """Fill columns with the next rows of a piece, without the lock."""
        cdef Piece* piece = &self.pieces[number]
        piece.state = IS_RUNNING
        pthread_mutex_unlock(&self.mutex)
        (<RecordColumns> self.slots[slot]).start_offset = piece.start_offset
        (<RecordColumns> self.slots[slot]).end_offset = piece.end_offset
        piece.stop = decode_usual(<RecordColumns> self.slots[slot], &piece.progress)
        pthread_mutex_lock(&self.mutex)
        piece.state = IS_READY if piece.stop == IS_PAUSED else IS_DONE
        if (<RecordColumns> self.slots[slot]).rows == 0:
            self.make_idle(slot)
            return
        self.following[slot] = NONE
        if piece.first_filled == NONE:
            piece.first_filled = slot
        else:
            self.following[piece.last_filled] = slot
        piece.last_filled = slot
        pthread_cond_broadcast(&self.changed)
