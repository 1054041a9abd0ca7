/* Preloaded: `pread` fails where `bad_disk.py` says that bytes of a file are lost. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/types.h>

#define MOST 64

static struct { dev_t device; ino_t inode; off_t start, end; } lost[MOST];
static int lost_count;

void bad_disk_forget(void) {
    lost_count = 0;
}

int bad_disk_damage(unsigned long long device, unsigned long long inode, long long start, long long end) {
    if (lost_count == MOST)
        return -1;
    lost[lost_count].device = device;
    lost[lost_count].inode = inode;
    lost[lost_count].start = start;
    lost[lost_count].end = end;
    lost_count++;
    return 0;
}

/* How many of these bytes can be read; -1: not even the first. */
static ssize_t readable(int descriptor, size_t size, off_t position) {
    struct stat status;
    if (!lost_count || fstat(descriptor, &status))
        return size;
    for (int i = lost_count - 1; i >= 0; i--) {
        if (lost[i].device != status.st_dev || lost[i].inode != status.st_ino)
            continue;
        if (lost[i].start <= position && position < lost[i].end)
            return -1;
        if (position < lost[i].start && lost[i].start - position < (off_t) size)
            return lost[i].start - position;
        return size;
    }
    return size;
}

typedef ssize_t reader(int, void *, size_t, off_t);

static ssize_t damaged(const char *name, int descriptor, void *buffer, size_t size, off_t position) {
    ssize_t can = readable(descriptor, size, position);
    if (can < 0) {
        errno = EIO;
        return -1;
    }
    return ((reader *) dlsym(RTLD_NEXT, name))(descriptor, buffer, can, position);
}

ssize_t pread(int descriptor, void *buffer, size_t size, off_t position) {
    return damaged("pread", descriptor, buffer, size, position);
}

ssize_t pread64(int descriptor, void *buffer, size_t size, off_t position) {
    return damaged("pread64", descriptor, buffer, size, position);
}
