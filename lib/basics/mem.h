/* mem.h: sizes that cannot wrap, and every allocation of the library.
 *
 * Sizes multiply through attn_mul: on overflow the result is SIZE_MAX, which no allocation grants,
 * so a chain of products needs one check at its end. */
#ifndef ATTN_LIB_BASICS_MEM_H
#define ATTN_LIB_BASICS_MEM_H

#include <stddef.h>
#include <stdint.h>

#define ATTN_ALIGN 64 /* bytes; one cache line, one AVX-512 register */

/* Bytes that an allocation takes beside its own: those that align it, and malloc's header. */
#define ATTN_ALLOCATION (ATTN_ALIGN + 16)

#define ATTN_COUNT(list) (sizeof(list) / sizeof(list)[0])

static inline size_t attn_mul(size_t a, size_t b)
{
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

static inline size_t attn_add(size_t a, size_t b)
{
    size_t sum;
    return __builtin_add_overflow(a, b, &sum) ? SIZE_MAX : sum;
}

static inline size_t attn_min(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t attn_max(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t attn_ceil_div(size_t a, size_t b) { return a / b + (a % b != 0); }

/* count elements of `size` bytes, aligned to ATTN_ALIGN, contents unspecified.  NULL where the
 * product wraps or memory is short; never NULL for count 0.  The caller frees with attn_free. */
void *attn_alloc(size_t count, size_t size);
void *attn_calloc(size_t count, size_t size); /* the same, zeroed */
void attn_free(void *memory);                 /* takes NULL */

struct attn_error;

/* Room for one more after `count` of the elements of `array`: the array, or a larger copy in its
 * place, *room being how many it holds; NULL, with nothing changed but the error, where memory is
 * short. */
void *attn_grow(void *array, size_t count, size_t *room, size_t size, struct attn_error *error);

/* As attn_alloc, in huge pages where the system gives them: for large arrays that are streamed
 * through again and again, which then need few address translations, and for those that are mapped
 * anew for each request, since a page of 4 KiB costs more to map and unmap than to fill. */
void *attn_alloc_huge(size_t count, size_t size);

#define ATTN_HUGE_PAGE ((size_t)2 << 20)

/* Maps zeroed pages straight from the system, as huge pages where there are such, aligned to
 * ATTN_HUGE_PAGE; NULL where memory is short.  attn_unmap gives all of them back.
 *
 * attn_drop_pages gives back the pages that lie whole in `part`, a range of the mapping `memory`:
 * the range reads as zeros afterwards, and no page of the mapping is huge any more. */
void *attn_map(size_t bytes);
void attn_unmap(void *memory, size_t bytes);
void attn_drop_pages(void *memory, size_t bytes, void *part, size_t part_bytes);

/* Maps the first bytes of a file for reading, aligned to ATTN_HUGE_PAGE and all of them at hand: as
 * huge pages where the page cache has or takes them.  Pages are shared by all processes that map
 * the file.  NULL where the system refuses, or cannot read the file.  attn_unmap ends the mapping;
 * who makes the file shorter before ends the process (SIGBUS). */
void *attn_map_file(int file, size_t bytes);

/* Has the page cache hold the file in huge pages, where it can be made to: files in memory (tmpfs)
 * begin in small ones.  Cost: a copy of the file. */
void attn_collapse_file(int file, size_t bytes);

#endif
