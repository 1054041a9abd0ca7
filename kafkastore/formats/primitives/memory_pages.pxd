"""Memory of whole pages, which returns to the system as soon as it is freed."""

cdef extern from *:
    """
    #ifdef __linux__
    /* Pages move to a larger place: memory from malloc may be copied, and is then there twice. */
    #include <sys/mman.h>
    static void* kafkastore_resized(void* memory, size_t before, size_t size) {
        void* resized = memory == NULL
            ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
            : mremap(memory, before, size, MREMAP_MAYMOVE);
        return resized == MAP_FAILED ? NULL : resized;
    }
    static void kafkastore_free_pages(void* memory, size_t size) {
        if (memory != NULL) munmap(memory, size);
    }
    #else
    #include <stdlib.h>
    #define kafkastore_resized(memory, before, size) realloc(memory, size)
    #define kafkastore_free_pages(memory, size) free(memory)
    #endif
    """
    void* resized "kafkastore_resized" (void*, size_t, size_t) noexcept nogil
    void free_pages "kafkastore_free_pages" (void*, size_t) noexcept nogil
