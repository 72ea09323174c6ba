/* blockpool.c: the cache pool.
 *
 * Models of different widths need blocks of different sizes; each size has lists of free ones.
 * Memory comes in slabs: of large blocks so many that huge pages hold them, as a step that reads
 * 4 KiB pages waits for address translations (a tenth of a batched decode); of small ones one each.
 *
 * Live blocks and idle ones, which are free and have memory, never pass the budget together: when
 * they would, idle blocks give theirs back to the system; where other blocks of a slab are live
 * they stay as empty ones, which get memory again when they are next used.  One mutex guards it
 * all; it is taken once in 64 tokens of a sequence. */
#include "blockpool.h"

#include <pthread.h>
#include <string.h>

#define MAX_SIZES 64                        /* different block sizes with lists of their own */
#define LEAST_IN_SLAB (ATTN_HUGE_PAGE / 32) /* bytes of a block of which there are several in one */
#define MOST_PAGES 8                        /* huge ones of a slab */

struct attn_slab {
    void *memory; /* of the blocks: mapped where there are several, else allocated */
    size_t bytes, count;
    size_t live; /* blocks in use */
    struct attn_block blocks[];
};

struct free_lists {
    size_t bytes;             /* of a block */
    struct attn_block *idle;  /* free, and holding memory */
    struct attn_block *empty; /* free, their memory given back or never used */
};

struct attn_cache_pool {
    pthread_mutex_t lock;
    size_t budget;
    atomic_size_t used; /* bytes of live blocks, and of places in caches that share them */
    size_t idle;        /* bytes of idle blocks */
    size_t num_sizes;
    struct free_lists sizes[MAX_SIZES];
};

/* ---- Slabs ---- */

/* How many blocks make a slab: so many that huge pages hold all but an eighth. */
static size_t blocks_of_slab(size_t bytes)
{
    size_t count = 1;
    for (size_t pages = 1; pages <= MOST_PAGES && bytes >= LEAST_IN_SLAB; pages++) {
        count = attn_ceil_div(pages * ATTN_HUGE_PAGE, bytes);
        if (count * bytes % ATTN_HUGE_PAGE <= count * bytes / 8)
            break;
    }
    return count;
}

static void slab_free(struct attn_slab *slab)
{
    if (slab->count > 1)
        attn_unmap(slab->memory, slab->bytes);
    else
        attn_free(slab->memory);
    attn_free(slab);
}

/* `count` blocks of zeros in no list; NULL where memory is short. */
static struct attn_slab *slab_new(size_t count, size_t bytes)
{
    struct attn_slab *slab = attn_calloc(1, sizeof *slab + count * sizeof slab->blocks[0]);
    if (slab == NULL)
        return NULL;
    slab->bytes = attn_mul(count, bytes);
    slab->count = count;
    slab->memory = count > 1 ? attn_map(slab->bytes) : attn_calloc(1, bytes);
    if (slab->memory == NULL) {
        attn_free(slab);
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        struct attn_block *block = &slab->blocks[i];
        block->bytes = bytes;
        block->data = (unsigned char *)slab->memory + i * bytes;
        block->slab = slab;
    }
    return slab;
}

/* ---- Free lists ---- */

static void put_in(struct attn_block **list, struct attn_block *block)
{
    block->next = *list;
    block->link = list;
    if (block->next != NULL)
        block->next->link = &block->next;
    *list = block;
}

static void take_out(struct attn_block *block)
{
    *block->link = block->next;
    if (block->next != NULL)
        block->next->link = block->link;
}

/* The lists of a size, made on first use; NULL when there are MAX_SIZES already. */
static struct free_lists *lists_of(struct attn_cache_pool *pool, size_t bytes)
{
    for (size_t i = 0; i < pool->num_sizes; i++)
        if (pool->sizes[i].bytes == bytes)
            return &pool->sizes[i];
    if (pool->num_sizes == MAX_SIZES)
        return NULL;
    struct free_lists *lists = &pool->sizes[pool->num_sizes++];
    *lists = (struct free_lists){.bytes = bytes};
    return lists;
}

/* Gives the memory of an idle block back to the system: the whole slab where none of it is live. */
static void give_back(struct free_lists *lists, struct attn_block *block)
{
    struct attn_slab *slab = block->slab;
    if (slab->live > 0) {
        take_out(block);
        attn_drop_pages(slab->memory, slab->bytes, block->data, block->bytes);
        put_in(&lists->empty, block);
        return;
    }
    for (size_t i = 0; i < slab->count; i++)
        take_out(&slab->blocks[i]);
    slab_free(slab);
}

static void trim(struct attn_cache_pool *pool)
{
    for (size_t i = 0; i < pool->num_sizes; i++)
        while (pool->sizes[i].idle != NULL)
            give_back(&pool->sizes[i], pool->sizes[i].idle);
    pool->idle = 0;
}

/* ---- The pool ---- */

enum attn_status attn_cache_pool_new(struct attn_cache_pool **out, size_t budget)
{
    struct attn_cache_pool *pool = attn_calloc(1, sizeof *pool);
    if (pool == NULL)
        return ATTN_NO_MEMORY;
    pthread_mutex_init(&pool->lock, NULL);
    pool->budget = budget;
    *out = pool;
    return ATTN_OK;
}

void attn_cache_pool_free(struct attn_cache_pool *pool)
{
    if (pool == NULL)
        return;
    trim(pool);
    pthread_mutex_destroy(&pool->lock);
    attn_free(pool);
}

size_t attn_cache_pool_used(const struct attn_cache_pool *pool)
{
    return atomic_load_explicit(&pool->used, memory_order_relaxed);
}

size_t attn_cache_pool_budget(const struct attn_cache_pool *pool) { return pool->budget; }

/* Whether `bytes` more are within the budget. */
static bool has_room(const struct attn_cache_pool *pool, size_t bytes)
{
    return bytes <= pool->budget && atomic_load(&pool->used) <= pool->budget - bytes;
}

/* Gives idle blocks back to the system where they and `bytes` more would pass the budget. */
static void make_room(struct attn_cache_pool *pool, size_t bytes)
{
    if (pool->idle > pool->budget - bytes - atomic_load(&pool->used))
        trim(pool);
}

/* A block of zeros: an empty one, or of a new slab, whose others become empty ones. */
static struct attn_block *fresh_block(struct free_lists *lists, size_t bytes)
{
    if (lists != NULL && lists->empty != NULL) {
        struct attn_block *block = lists->empty;
        take_out(block);
        return block;
    }
    struct attn_slab *slab = slab_new(lists != NULL ? blocks_of_slab(bytes) : 1, bytes);
    for (size_t i = slab != NULL ? slab->count : 0; i-- > 1;) /* to be taken in order of address */
        put_in(&lists->empty, &slab->blocks[i]);
    return slab != NULL ? &slab->blocks[0] : NULL;
}

/* An idle block, or a fresh one within the budget. */
static enum attn_status take(struct attn_block **out, struct attn_cache_pool *pool, size_t bytes)
{
    struct free_lists *lists = lists_of(pool, bytes);
    if (!has_room(pool, bytes))
        return ATTN_POOL_FULL;
    if (lists != NULL && lists->idle != NULL) {
        *out = lists->idle;
        take_out(*out);
        pool->idle -= bytes;
        return ATTN_OK;
    }
    make_room(pool, bytes);
    *out = fresh_block(lists, bytes);
    return *out != NULL ? ATTN_OK : ATTN_NO_MEMORY;
}

/* Under the lock. */
static enum attn_status get(struct attn_block **out, struct attn_cache_pool *pool, size_t bytes)
{
    enum attn_status status = take(out, pool, bytes);
    if (status != ATTN_OK)
        return status;
    atomic_fetch_add(&pool->used, bytes);
    (*out)->slab->live++;
    (*out)->holders = 1;
    (*out)->tokens = 0;
    atomic_store(&(*out)->references, 1);
    return ATTN_OK;
}

/* Under the lock: a block to which nothing refers any more. */
static void give(struct attn_cache_pool *pool, struct attn_block *block)
{
    struct free_lists *lists = lists_of(pool, block->bytes);
    atomic_fetch_sub(&pool->used, block->bytes);
    block->slab->live--;
    if (lists != NULL) {
        put_in(&lists->idle, block);
        pool->idle += block->bytes;
    } else {
        slab_free(block->slab);
    }
}

enum attn_status attn_block_alloc(struct attn_block **out, struct attn_cache_pool *pool,
                                  size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    enum attn_status status = get(out, pool, bytes);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void attn_block_ref(struct attn_block *block) { atomic_fetch_add(&block->references, 1); }

void attn_block_unref(struct attn_cache_pool *pool, struct attn_block *block)
{
    if (atomic_fetch_sub(&block->references, 1) != 1)
        return;
    pthread_mutex_lock(&pool->lock);
    give(pool, block);
    pthread_mutex_unlock(&pool->lock);
}

/* ---- Caches that hold a block ----
 *
 * What is charged is a matter of who holds a block now, and not of who had it first: after a
 * restart that may be another one.  Caches that hold a block together take no more than if each had
 * its own, so that a restart, by which more of them share, needs no more than there was. */

/* Under the lock: what one of its caches gives back of the budget when it leaves. */
static size_t place_bytes(const struct attn_block *block)
{
    return block->holders > 1 ? ATTN_HOLDER_BYTES : 0;
}

bool attn_block_add_holder(struct attn_cache_pool *pool, struct attn_block *block)
{
    pthread_mutex_lock(&pool->lock);
    size_t bytes = block->holders > 0 ? ATTN_HOLDER_BYTES : 0;
    bool room = has_room(pool, bytes);
    if (room) {
        make_room(pool, bytes);
        atomic_fetch_add(&pool->used, bytes);
        block->holders++;
        attn_block_ref(block);
    }
    pthread_mutex_unlock(&pool->lock);
    return room;
}

void attn_block_remove_holder(struct attn_cache_pool *pool, struct attn_block *block)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_sub(&pool->used, place_bytes(block));
    block->holders--;
    if (atomic_fetch_sub(&block->references, 1) == 1)
        give(pool, block);
    pthread_mutex_unlock(&pool->lock);
}

enum attn_status attn_block_copy_on_write(struct attn_block **out, struct attn_cache_pool *pool,
                                          struct attn_block *block)
{
    pthread_mutex_lock(&pool->lock);
    size_t place = place_bytes(block);
    atomic_fetch_sub(&pool->used, place);
    enum attn_status status = get(out, pool, block->bytes);
    if (status == ATTN_OK)
        block->holders--;
    else
        atomic_fetch_add(&pool->used, place);
    pthread_mutex_unlock(&pool->lock);
    if (status != ATTN_OK)
        return status;
    memcpy((*out)->data, block->data, block->bytes);
    attn_block_unref(pool, block);
    return ATTN_OK;
}
