/* blockpool.c: the cache pool.
 *
 * Models of different widths need blocks of different sizes; each size has a free list.  Live and
 * free blocks together never pass the budget: when a size runs dry while others keep free blocks,
 * those are returned to the system first.  One mutex guards it all; it is taken once in 64 tokens
 * of a sequence. */
#include "blockpool.h"

#include <pthread.h>

#define MAX_SIZES 64 /* different block sizes with a free list of their own */

struct free_list {
    size_t bytes;
    struct attn_block *first;
};

struct attn_cache_pool {
    pthread_mutex_t lock;
    size_t budget;
    atomic_size_t used; /* bytes of live blocks and what is charged beside them */
    size_t idle;        /* bytes of free blocks */
    size_t num_lists;
    struct free_list lists[MAX_SIZES];
};

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

static void free_list_clear(struct attn_cache_pool *pool, struct free_list *list)
{
    while (list->first != NULL) {
        struct attn_block *block = list->first;
        list->first = block->next;
        pool->idle -= block->bytes;
        attn_free(block);
    }
}

static void trim(struct attn_cache_pool *pool)
{
    for (size_t i = 0; i < pool->num_lists; i++)
        free_list_clear(pool, &pool->lists[i]);
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

/* The free list of a size, made on first use; NULL when there are MAX_SIZES already. */
static struct free_list *list_for(struct attn_cache_pool *pool, size_t bytes)
{
    for (size_t i = 0; i < pool->num_lists; i++)
        if (pool->lists[i].bytes == bytes)
            return &pool->lists[i];
    if (pool->num_lists == MAX_SIZES)
        return NULL;
    struct free_list *list = &pool->lists[pool->num_lists++];
    *list = (struct free_list){.bytes = bytes};
    return list;
}

static struct attn_block *pop(struct attn_cache_pool *pool, struct free_list *list)
{
    struct attn_block *block = list ? list->first : NULL;
    if (block != NULL) {
        list->first = block->next;
        pool->idle -= block->bytes;
    }
    return block;
}

/* Whether `bytes` more are within the budget. */
static bool has_room(const struct attn_cache_pool *pool, size_t bytes)
{
    return bytes <= pool->budget && atomic_load(&pool->used) <= pool->budget - bytes;
}

/* Gives free blocks back to the system where they and `bytes` more would pass the budget. */
static void make_room(struct attn_cache_pool *pool, size_t bytes)
{
    if (pool->idle > pool->budget - bytes - atomic_load(&pool->used))
        trim(pool);
}

/* A block from its list, or a new one within the budget. */
static enum attn_status take(struct attn_block **out, struct attn_cache_pool *pool, size_t bytes)
{
    if (!has_room(pool, bytes))
        return ATTN_POOL_FULL;
    *out = pop(pool, list_for(pool, bytes));
    if (*out != NULL)
        return ATTN_OK;
    make_room(pool, bytes);
    *out = attn_calloc(1, sizeof **out + bytes);
    return *out ? ATTN_OK : ATTN_NO_MEMORY;
}

enum attn_status attn_block_get(struct attn_block **out, struct attn_cache_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    enum attn_status status = take(out, pool, bytes);
    if (status == ATTN_OK) {
        atomic_fetch_add(&pool->used, bytes);
        (*out)->bytes = bytes;
        atomic_store(&(*out)->references, 1);
    }
    pthread_mutex_unlock(&pool->lock);
    return status;
}

void attn_block_share(struct attn_block *block) { atomic_fetch_add(&block->references, 1); }

void attn_block_put(struct attn_cache_pool *pool, struct attn_block *block)
{
    if (atomic_fetch_sub(&block->references, 1) != 1)
        return;
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_sub(&pool->used, block->bytes);
    struct free_list *list = list_for(pool, block->bytes);
    if (list != NULL) {
        block->next = list->first;
        list->first = block;
        pool->idle += block->bytes;
    }
    pthread_mutex_unlock(&pool->lock);
    if (list == NULL)
        attn_free(block);
}

bool attn_pool_charge(struct attn_cache_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    bool room = has_room(pool, bytes);
    if (room) {
        make_room(pool, bytes);
        atomic_fetch_add(&pool->used, bytes);
    }
    pthread_mutex_unlock(&pool->lock);
    return room;
}

void attn_pool_discharge(struct attn_cache_pool *pool, size_t bytes)
{
    pthread_mutex_lock(&pool->lock);
    atomic_fetch_sub(&pool->used, bytes);
    pthread_mutex_unlock(&pool->lock);
}
