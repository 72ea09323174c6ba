/* blockpool.c: the cache pool.
 *
 * A block is a head, which lists of caches point to, and a piece of memory for its tokens; a block
 * that a store has may be without.  Models of different widths need pieces of different sizes; each
 * size has its free lists.  Pieces come in slabs.  A slab of large pieces has so many that huge
 * pages hold them, since a step over 4 KiB pages waits for address translations (a tenth of a
 * batched decode); a small piece is a slab of its own.
 *
 * Invariant: live pieces and idle ones (free, with memory) never pass the budget together.  Where
 * they would, idle pieces give their memory back to the system.  A slab without live pieces is
 * freed whole; in any other slab the pieces become empty ones, which get memory again when they are
 * next used.  One mutex guards everything; a sequence takes it once in 64 tokens. */
#include <pthread.h>
#include <string.h>
#include <sys/queue.h>

#include "caches/kvcache.h"

#define MAX_SIZES 64                         /* different sizes with free lists */
#define MIN_SLAB_PIECE (ATTN_HUGE_PAGE / 32) /* bytes; smaller pieces have a slab each */
#define MAX_SLAB_PAGES 8                     /* huge pages of one slab */

#define HEAD_BYTES ((size_t)128) /* of the budget, for a block without memory and a list's entry */

struct attn_piece {
    LIST_ENTRY(attn_piece) link; /* in a free list */
    unsigned char *data;         /* aligned to ATTN_ALIGN */
    struct slab *slab;
};

struct slab {
    void *memory; /* of the pieces: mapped where there are several, else allocated */
    size_t bytes, count;
    size_t live;      /* pieces in use */
    bool is_unlisted; /* its one piece never stands in a list */
    struct attn_piece pieces[];
};

struct free_lists {
    size_t bytes;                  /* of a piece */
    size_t live;                   /* pieces of the size in use */
    LIST_HEAD(, attn_piece) idle;  /* free, and holding memory */
    LIST_HEAD(, attn_piece) empty; /* free, their memory given back or never used */
};

struct attn_cache_pool {
    pthread_mutex_t lock;
    size_t budget;
    /* Bytes of blocks in memory, HEAD_BYTES for each other, ATTN_HOLDER_BYTES for each further
     * holder. */
    atomic_size_t used;
    size_t idle; /* bytes of idle pieces */
    size_t num_sizes;
    struct free_lists sizes[MAX_SIZES];
    void (*dropped)(void *context, const struct attn_stored *place); /* NULL: nobody is told */
    void *context;
};

/* ---- Slabs ---- */

/* The number of pieces of a slab: whole huge pages then hold at least seven eighths of it. */
static size_t pieces_per_slab(size_t bytes)
{
    size_t count = 1;
    for (size_t pages = 1; pages <= MAX_SLAB_PAGES && bytes >= MIN_SLAB_PIECE; pages++) {
        count = attn_ceil_div(pages * ATTN_HUGE_PAGE, bytes);
        if (count * bytes % ATTN_HUGE_PAGE <= count * bytes / 8)
            break;
    }
    return count;
}

static void slab_free(struct slab *slab)
{
    if (slab->count > 1)
        attn_unmap(slab->memory, slab->bytes);
    else
        attn_free(slab->memory);
    attn_free(slab);
}

/* Makes a slab of `count` zeroed pieces, which stand in no list yet; NULL where memory is short. */
static struct slab *slab_new(size_t count, size_t bytes)
{
    struct slab *slab = attn_calloc(1, sizeof *slab + count * sizeof slab->pieces[0]);
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
        slab->pieces[i].data = (unsigned char *)slab->memory + i * bytes;
        slab->pieces[i].slab = slab;
    }
    return slab;
}

/* ---- Free lists ---- */

/* The free lists of a size, NULL where there are none yet. */
static struct free_lists *find_lists(struct attn_cache_pool *pool, size_t bytes)
{
    for (size_t i = 0; i < pool->num_sizes; i++)
        if (pool->sizes[i].bytes == bytes)
            return &pool->sizes[i];
    return NULL;
}

/* Gives the memory of an idle piece back to the system; the whole slab where none of it is live. */
static void reclaim(struct free_lists *lists, struct attn_piece *piece)
{
    struct slab *slab = piece->slab;
    if (slab->live > 0) {
        LIST_REMOVE(piece, link);
        attn_drop_pages(slab->memory, slab->bytes, piece->data, lists->bytes);
        LIST_INSERT_HEAD(&lists->empty, piece, link);
        return;
    }
    for (size_t i = 0; i < slab->count; i++)
        LIST_REMOVE(&slab->pieces[i], link);
    slab_free(slab);
}

static void reclaim_lists(struct attn_cache_pool *pool, struct free_lists *lists)
{
    struct attn_piece *piece;
    LIST_FOREACH(piece, &lists->idle, link)
        pool->idle -= lists->bytes;
    while (!LIST_EMPTY(&lists->idle))
        reclaim(lists, LIST_FIRST(&lists->idle));
}

static void reclaim_idle(struct attn_cache_pool *pool)
{
    for (size_t i = 0; i < pool->num_sizes; i++)
        reclaim_lists(pool, &pool->sizes[i]);
}

/* Gives back what sizes hold of which no piece is in use: their partly used huge pages pass the
 * budget, and shapes of weightless sessions come and go. */
static void reclaim_unused(struct attn_cache_pool *pool)
{
    for (size_t i = 0; i < pool->num_sizes; i++)
        if (pool->sizes[i].live == 0)
            reclaim_lists(pool, &pool->sizes[i]);
}

/* Free lists for a size that has none: new ones, or those of a size of which no piece is in use;
 * NULL where all are in use. */
static struct free_lists *make_lists(struct attn_cache_pool *pool, size_t bytes)
{
    struct free_lists *lists = pool->sizes;
    while (lists < pool->sizes + pool->num_sizes &&
           (pool->num_sizes < MAX_SIZES || lists->live > 0))
        lists++;
    if (lists == pool->sizes + MAX_SIZES)
        return NULL;
    if (pool->num_sizes < MAX_SIZES)
        pool->num_sizes++;
    else
        reclaim_lists(pool, lists);
    *lists = (struct free_lists){.bytes = bytes};
    return lists;
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
    reclaim_idle(pool);
    pthread_mutex_destroy(&pool->lock);
    attn_free(pool);
}

size_t attn_cache_pool_used(const struct attn_cache_pool *pool)
{
    return atomic_load_explicit(&pool->used, memory_order_relaxed);
}

size_t attn_cache_pool_budget(const struct attn_cache_pool *pool) { return pool->budget; }

void attn_cache_pool_set_dropped(struct attn_cache_pool *pool,
                                 void (*dropped)(void *context, const struct attn_stored *place),
                                 void *context)
{
    pthread_mutex_lock(&pool->lock);
    pool->dropped = dropped;
    pool->context = context;
    pthread_mutex_unlock(&pool->lock);
}

/* Whether `bytes` more are within the budget. */
static bool has_room(const struct attn_cache_pool *pool, size_t bytes)
{
    return bytes <= pool->budget && atomic_load(&pool->used) <= pool->budget - bytes;
}

/* Gives idle pieces back to the system where together with `bytes` more they would pass the
 * budget. */
static void make_room(struct attn_cache_pool *pool, size_t bytes)
{
    if (pool->idle > pool->budget - bytes - atomic_load(&pool->used))
        reclaim_idle(pool);
}

/* A zeroed piece: an empty one, or the first of a new slab, whose others become empty ones. */
static struct attn_piece *fresh_piece(struct free_lists *lists, size_t bytes)
{
    if (lists != NULL && !LIST_EMPTY(&lists->empty)) {
        struct attn_piece *piece = LIST_FIRST(&lists->empty);
        LIST_REMOVE(piece, link);
        return piece;
    }
    struct slab *slab = slab_new(lists != NULL ? pieces_per_slab(bytes) : 1, bytes);
    /* Pushed from the last on, so that they are taken in order of address. */
    for (size_t i = slab != NULL ? slab->count : 0; i-- > 1;)
        LIST_INSERT_HEAD(&lists->empty, &slab->pieces[i], link);
    if (slab == NULL)
        return NULL;
    slab->is_unlisted = lists == NULL;
    return &slab->pieces[0];
}

/* Gives a block memory, of which `charged` bytes are in the budget already: an idle piece, or a
 * fresh one within the budget.  The caller holds the lock. */
static enum attn_status take_piece(struct attn_cache_pool *pool, struct attn_block *block,
                                   size_t charged)
{
    const size_t bytes = block->bytes, more = bytes > charged ? bytes - charged : 0;
    if (!has_room(pool, more))
        return ATTN_POOL_FULL;
    struct free_lists *lists = find_lists(pool, bytes);
    if (lists == NULL)
        lists = make_lists(pool, bytes);
    if (lists != NULL && !LIST_EMPTY(&lists->idle)) {
        block->piece = LIST_FIRST(&lists->idle);
        LIST_REMOVE(block->piece, link);
        pool->idle -= bytes;
    } else {
        if (lists == NULL || LIST_EMPTY(&lists->empty))
            reclaim_unused(pool);
        make_room(pool, more);
        block->piece = fresh_piece(lists, bytes);
        if (block->piece == NULL)
            return ATTN_NO_MEMORY;
    }
    atomic_fetch_add(&pool->used, bytes - charged);
    block->piece->slab->live++;
    if (lists != NULL)
        lists->live++;
    block->data = block->piece->data;
    return ATTN_OK;
}

/* Takes the memory of a block, all of whose tokens are in the store or needed no more.  The caller
 * holds the lock. */
static void give_piece(struct attn_cache_pool *pool, struct attn_block *block, size_t charged)
{
    struct attn_piece *piece = block->piece;
    atomic_fetch_sub(&pool->used, block->bytes - charged);
    block->piece = NULL;
    block->data = NULL;
    piece->slab->live--;
    if (piece->slab->is_unlisted) {
        slab_free(piece->slab);
        return;
    }
    struct free_lists *lists = find_lists(pool, block->bytes);
    lists->live--;
    LIST_INSERT_HEAD(&lists->idle, piece, link);
    pool->idle += block->bytes;
    make_room(pool, 0); /* for the head */
}

/* Allocates a block, with memory unless it is `absent`.  The caller holds the lock. */
static enum attn_status alloc_locked(struct attn_block **out, struct attn_cache_pool *pool,
                                     size_t bytes, bool absent)
{
    enum attn_status status = ATTN_OK;
    if (absent && !has_room(pool, HEAD_BYTES))
        return ATTN_POOL_FULL;
    struct attn_block *block = attn_calloc(1, sizeof *block);
    if (block == NULL)
        return ATTN_NO_MEMORY;
    block->bytes = bytes;
    if (absent) {
        make_room(pool, HEAD_BYTES);
        atomic_fetch_add(&pool->used, HEAD_BYTES);
    } else {
        status = take_piece(pool, block, 0);
    }
    if (status != ATTN_OK) {
        attn_free(block);
        return status;
    }
    block->holders = 1;
    block->users = absent ? 0 : 1;
    atomic_store(&block->references, 1);
    *out = block;
    return ATTN_OK;
}

/* Tells the store that the block's place there is needed no more. */
static void drop_place(const struct attn_cache_pool *pool, struct attn_block *block)
{
    if (block->stored.rows > 0 && pool->dropped != NULL)
        pool->dropped(pool->context, &block->stored);
    block->stored = (struct attn_stored){0};
}

enum attn_status attn_block_change(struct attn_cache_pool *pool, struct attn_block *block,
                                   unsigned first, unsigned end)
{
    enum attn_status status = ATTN_OK;
    if (block->data == NULL) {
        pthread_mutex_lock(&pool->lock);
        status = take_piece(pool, block, HEAD_BYTES);
        pthread_mutex_unlock(&pool->lock);
    }
    if (status != ATTN_OK)
        return status;
    block->absent = block->absent < first ? block->absent : first;
    block->filled = end;
    block->needed = block->users > 0 ? 0 : end;
    if (first == 0)
        drop_place(pool, block);
    else if (block->stored.rows > first)
        block->stored.rows = first;
    return ATTN_OK;
}

/* Takes the memory of a block that no cache uses, whose tokens the store has, and which nobody
 * writes there now.  The caller holds the lock. */
static void release_unused(struct attn_cache_pool *pool, struct attn_block *block)
{
    if (block->users > 0 || block->data == NULL || block->holders == 0 ||
        atomic_load(&block->references) != block->holders || block->stored.rows == 0 ||
        block->stored.rows < block->needed)
        return;
    give_piece(pool, block, HEAD_BYTES);
    block->absent = block->stored.rows;
}

/* Frees a block without references.  The caller holds the lock. */
static void free_locked(struct attn_cache_pool *pool, struct attn_block *block)
{
    drop_place(pool, block);
    if (block->data != NULL)
        give_piece(pool, block, 0);
    else
        atomic_fetch_sub(&pool->used, HEAD_BYTES);
    attn_free(block);
}

enum attn_status attn_block_alloc(struct attn_block **out, struct attn_cache_pool *pool,
                                  size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    enum attn_status status = alloc_locked(out, pool, bytes, false);
    pthread_mutex_unlock(&pool->lock);
    return status;
}

enum attn_status attn_block_alloc_absent(struct attn_block **out, struct attn_cache_pool *pool,
                                         size_t bytes, const struct attn_stored *stored)
{
    pthread_mutex_lock(&pool->lock);
    enum attn_status status = alloc_locked(out, pool, bytes, true);
    pthread_mutex_unlock(&pool->lock);
    if (status != ATTN_OK)
        return status;
    (*out)->stored = *stored;
    (*out)->filled = stored->rows;
    (*out)->needed = stored->rows;
    (*out)->absent = stored->rows;
    return ATTN_OK;
}

void attn_block_ref(struct attn_block *block) { atomic_fetch_add(&block->references, 1); }

void attn_block_unref(struct attn_cache_pool *pool, struct attn_block *block)
{
    pthread_mutex_lock(&pool->lock);
    if (atomic_fetch_sub(&block->references, 1) == 1)
        free_locked(pool, block);
    else
        release_unused(pool, block);
    pthread_mutex_unlock(&pool->lock);
}

/* ---- Caches that use a block ---- */

size_t attn_block_more_bytes(const struct attn_block *block)
{
    return block->bytes > HEAD_BYTES ? block->bytes - HEAD_BYTES : 0;
}

enum attn_status attn_block_use(struct attn_cache_pool *pool, struct attn_block *block)
{
    pthread_mutex_lock(&pool->lock);
    const enum attn_status status =
        block->data == NULL ? take_piece(pool, block, HEAD_BYTES) : ATTN_OK;
    block->users += status == ATTN_OK;
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void attn_block_unuse(struct attn_cache_pool *pool, struct attn_block *block, unsigned tokens)
{
    pthread_mutex_lock(&pool->lock);
    block->users--;
    if (tokens > block->needed || (tokens > 0 && block->holders == 1))
        block->needed = tokens;
    release_unused(pool, block);
    pthread_mutex_unlock(&pool->lock);
}

/* ---- Caches that hold a block ----
 *
 * The charge depends on who holds a block now, not on who allocated it: after a restart that may be
 * another cache.  Caches that hold a block together take no more than if each had its own, so that
 * a restart, after which more of them share, needs no more budget than before. */

/* The bytes that a cache gives back to the budget when it leaves.  The caller holds the lock. */
static size_t holder_bytes(const struct attn_block *block)
{
    return block->holders > 1 ? ATTN_HOLDER_BYTES : 0;
}

bool attn_block_add_holder(struct attn_cache_pool *pool, struct attn_block *block, bool uses)
{
    pthread_mutex_lock(&pool->lock);
    size_t bytes = block->holders > 0 ? ATTN_HOLDER_BYTES : 0;
    bool room = has_room(pool, bytes);
    if (room) {
        make_room(pool, bytes);
        atomic_fetch_add(&pool->used, bytes);
        block->holders++;
        block->users += uses;
        attn_block_ref(block);
    }
    pthread_mutex_unlock(&pool->lock);
    return room;
}

void attn_block_remove_holder(struct attn_cache_pool *pool, struct attn_block *block, bool uses)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_sub(&pool->used, holder_bytes(block));
    block->holders--;
    block->users -= uses;
    if (atomic_fetch_sub(&block->references, 1) == 1)
        free_locked(pool, block);
    else
        release_unused(pool, block);
    pthread_mutex_unlock(&pool->lock);
}

enum attn_status attn_block_copy_on_write(struct attn_block **out, struct attn_cache_pool *pool,
                                          struct attn_block *block, bool uses)
{
    pthread_mutex_lock(&pool->lock);
    size_t released = holder_bytes(block);
    atomic_fetch_sub(&pool->used, released);
    enum attn_status status = alloc_locked(out, pool, block->bytes, false);
    if (status != ATTN_OK)
        atomic_fetch_add(&pool->used, released);
    pthread_mutex_unlock(&pool->lock);
    if (status != ATTN_OK)
        return status;
    memcpy((*out)->data, block->data, block->bytes);
    pthread_mutex_lock(&pool->lock);
    (*out)->users = uses;
    block->holders--;
    block->users -= uses;
    pthread_mutex_unlock(&pool->lock);
    attn_block_unref(pool, block);
    return ATTN_OK;
}
