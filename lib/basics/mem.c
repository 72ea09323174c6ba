/* mem.c: aligned allocation with a checked product, and mappings of huge pages. */
#include "basics/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "basics/status.h"

static void *alloc_aligned(size_t count, size_t size, size_t align)
{
    size_t bytes = attn_add(attn_mul(count, size), ATTN_ALIGN - 1) & ~(size_t)(ATTN_ALIGN - 1);
    void *memory;
    if (bytes > PTRDIFF_MAX || posix_memalign(&memory, align, attn_max(bytes, ATTN_ALIGN)) != 0)
        return NULL;
    return memory;
}

void *attn_alloc(size_t count, size_t size) { return alloc_aligned(count, size, ATTN_ALIGN); }

/* Where the kernel ignores the advice, only speed is lost.  Memory smaller than a huge page gets no
 * advice: all of it would be resident as soon as its first byte is. */
void *attn_alloc_huge(size_t count, size_t size)
{
    if (attn_mul(count, size) < ATTN_HUGE_PAGE)
        return attn_alloc(count, size);
    void *memory = alloc_aligned(count, size, ATTN_HUGE_PAGE);
    if (memory != NULL)
        (void)madvise(memory, count * size / ATTN_HUGE_PAGE * ATTN_HUGE_PAGE, MADV_HUGEPAGE);
    return memory;
}

static char *align_up(char *at, size_t align)
{
    return at + (align - (uintptr_t)at % align) % align;
}

/* 4, 16 or 64 KiB on arm64: half a page is neither unmapped nor dropped. */
static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

/* Maps a huge page more than asked for, so that an aligned part is inside, and unmaps the rest
 * before and after it. */
static char *map_aligned(size_t bytes, int protection, int flags)
{
    const size_t asked = attn_add(bytes, ATTN_HUGE_PAGE);
    char *all = mmap(NULL, asked, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    char *memory = align_up(all, ATTN_HUGE_PAGE), *end = align_up(memory + bytes, page_size());
    if (memory > all)
        (void)munmap(all, (size_t)(memory - all));
    if (all + asked > end)
        (void)munmap(end, (size_t)(all + asked - end));
    return memory;
}

void *attn_map(size_t bytes)
{
    void *memory = map_aligned(bytes, PROT_READ | PROT_WRITE, 0);
    if (memory != NULL)
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

/* Newer than the C library's headers. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static void *map_file(int file, size_t bytes)
{
    void *memory = map_aligned(bytes, PROT_NONE, MAP_NORESERVE);
    if (memory == NULL || mmap(memory, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == memory)
        return memory;
    attn_unmap(memory, bytes);
    return NULL;
}

/* A page that cannot be read shows here as an error, and later as SIGBUS.  EINVAL: the kernel does
 * not know the advice. */
void *attn_map_file(int file, size_t bytes)
{
    void *memory = map_file(file, bytes);
    if (memory == NULL)
        return NULL;
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    if (madvise(memory, bytes, MADV_POPULATE_READ) == 0 || errno == EINVAL)
        return memory;
    attn_unmap(memory, bytes);
    return NULL;
}

void attn_collapse_file(int file, size_t bytes)
{
    void *memory = map_file(file, bytes);
    if (memory != NULL) {
        (void)madvise(memory, bytes, MADV_COLLAPSE);
        attn_unmap(memory, bytes);
    }
}

void attn_unmap(void *memory, size_t bytes) { (void)munmap(memory, bytes); }

void attn_drop_pages(void *memory, size_t bytes, void *part, size_t part_bytes)
{
    char *first = align_up(part, page_size()), *end = (char *)part + part_bytes;
    end -= (uintptr_t)end % page_size();
    (void)madvise(memory, bytes, MADV_NOHUGEPAGE);
    if (first < end)
        (void)madvise(first, (size_t)(end - first), MADV_DONTNEED);
}

void *attn_calloc(size_t count, size_t size)
{
    void *memory = attn_alloc(count, size);
    if (memory != NULL)
        memset(memory, 0, count * size);
    return memory;
}

void *attn_grow(void *array, size_t count, size_t *room, size_t size, struct attn_error *error)
{
    const size_t more = attn_add(2 * *room, 64);
    if (count < *room)
        return array;
    void *larger = attn_alloc(more, size);
    if (larger == NULL) {
        attn_fail_memory(error, attn_mul(more, size));
        return NULL;
    }
    if (count > 0)
        memcpy(larger, array, count * size);
    attn_free(array);
    *room = more;
    return larger;
}

void attn_free(void *memory) { free(memory); }
