/* test_blockpool.c: cache blocks: budget, slabs, and memory that goes back to the system. */
#include <check.h>
#include <string.h>
#include <sys/mman.h>

#include "caches/kvcache.h"
#include "opened.h"
#include "suites.h"

#define LARGE ((size_t)512 << 10) /* a block size of which a slab has four */
#define OTHER ((size_t)384 << 10)
#define BLOCKS 16

static struct attn_cache_pool *pool;
static struct attn_block *blocks[BLOCKS];

static void setup(void) { ck_assert_int_eq(attn_cache_pool_new(&pool, BLOCKS * LARGE), ATTN_OK); }

static void teardown(void) { free_unused_pool(pool); }

static bool is_filled(const struct attn_block *block, unsigned char value)
{
    return block->data[0] == value && memcmp(block->data, block->data + 1, block->bytes - 1) == 0;
}

/* Takes all blocks of the budget, each filled with its number + 1. */
static void take_all(void)
{
    for (size_t i = 0; i < BLOCKS; i++) {
        ck_assert_int_eq(attn_block_alloc(&blocks[i], pool, LARGE), ATTN_OK);
        memset(blocks[i]->data, (int)i + 1, LARGE);
    }
}

/* Gives back all blocks but every fourth, so that each slab keeps one. */
static void put_most(void)
{
    for (size_t i = 0; i < BLOCKS; i++)
        if (i % 4 != 0)
            attn_block_unref(pool, blocks[i]);
}

static void put_rest(void)
{
    for (size_t i = 0; i < BLOCKS; i += 4)
        attn_block_unref(pool, blocks[i]);
}

CASE(blocks, setup, teardown, 0)

TEST(blockpool_new_blocks_are_aligned_zeros)
{
    static const size_t sizes[] = {64, 4096, LARGE, OTHER, (size_t)3 << 20};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        struct attn_block *block;
        ck_assert_int_eq(attn_block_alloc(&block, pool, sizes[i]), ATTN_OK);
        ck_assert_uint_eq((uintptr_t)block->data % ATTN_ALIGN, 0);
        ck_assert(is_filled(block, 0));
        ck_assert_uint_eq(attn_cache_pool_used(pool), sizes[i]);
        attn_block_unref(pool, block);
    }
}

TEST(blockpool_blocks_of_a_slab_do_not_overlap)
{
    take_all();
    for (size_t i = 0; i < BLOCKS; i++)
        ck_assert(is_filled(blocks[i], (unsigned char)(i + 1)));
    struct attn_block *more;
    ck_assert_int_eq(attn_block_alloc(&more, pool, LARGE), ATTN_POOL_FULL);
    put_most();
    put_rest();
}

TEST(blockpool_a_block_larger_than_what_is_left_of_the_budget_is_refused)
{
    struct attn_block *small, *more;
    ck_assert_int_eq(attn_block_alloc(&small, pool, 64), ATTN_OK);
    for (size_t i = 0; i + 1 < BLOCKS; i++)
        ck_assert_int_eq(attn_block_alloc(&blocks[i], pool, LARGE), ATTN_OK);
    ck_assert_int_eq(attn_block_alloc(&more, pool, LARGE), ATTN_POOL_FULL);
    for (size_t i = 0; i + 1 < BLOCKS; i++)
        attn_block_unref(pool, blocks[i]);
    attn_block_unref(pool, small);
}

TEST(blockpool_a_returned_block_is_used_again_as_it_is)
{
    take_all();
    attn_block_unref(pool, blocks[3]);
    ck_assert_int_eq(attn_block_alloc(&blocks[3], pool, LARGE), ATTN_OK);
    ck_assert(is_filled(blocks[3], 4));
    put_most();
    put_rest();
}

TEST(blockpool_idle_memory_goes_back_before_another_size_passes_the_budget)
{
    struct attn_block *others[BLOCKS];
    take_all();
    put_most();
    for (size_t i = 0; i < BLOCKS; i++)
        ck_assert_int_eq(attn_block_alloc(&others[i], pool, OTHER), ATTN_OK);
    for (size_t i = 0; i < BLOCKS; i += 4) /* the live blocks of these slabs kept their content */
        ck_assert(is_filled(blocks[i], (unsigned char)(i + 1)));
    for (size_t i = 0; i < BLOCKS; i++)
        attn_block_unref(pool, others[i]);
    for (size_t i = 0; i < BLOCKS; i++) {
        if (i % 4 == 0)
            continue;
        ck_assert_int_eq(attn_block_alloc(&blocks[i], pool, LARGE), ATTN_OK);
        ck_assert(is_filled(blocks[i], 0)); /* zeros: their pages were dropped */
    }
    put_most();
    put_rest();
}

TEST(blockpool_a_slab_with_nothing_live_goes_back_whole)
{
    struct attn_block *other;
    take_all();
    put_most();
    ck_assert_int_eq(attn_block_alloc(&other, pool, BLOCKS * LARGE - 4 * LARGE), ATTN_OK);
    put_rest();
    ck_assert_int_eq(attn_block_alloc(&blocks[0], pool, 4 * LARGE),
                     ATTN_OK); /* reclaims idle blocks again */
    attn_block_unref(pool, blocks[0]);
    attn_block_unref(pool, other);
    take_all();
    put_most();
    put_rest();
}

TEST(blockpool_more_sizes_than_it_keeps_lists_for_work_too)
{
    struct attn_block *all[80];
    for (size_t i = 0; i < 80; i++) {
        ck_assert_int_eq(attn_block_alloc(&all[i], pool, 64 * (i + 1)), ATTN_OK);
        ck_assert(is_filled(all[i], 0));
    }
    for (size_t i = 0; i < 80; i++)
        attn_block_unref(pool, all[i]);
}

TEST(blockpool_sizes_that_are_out_of_use_leave_their_lists_to_others)
{
    struct attn_block *block, *next;
    for (size_t i = 0; i < 200; i++) { /* three times the lists */
        ck_assert_int_eq(attn_block_alloc(&block, pool, 64 * (i + 1)), ATTN_OK);
        attn_block_unref(pool, block);
    }
    ck_assert_int_eq(attn_block_alloc(&block, pool, LARGE), ATTN_OK);
    ck_assert_int_eq(attn_block_alloc(&next, pool, LARGE), ATTN_OK);
    ck_assert_ptr_eq(next->data, block->data + LARGE); /* one slab, which only lists have */
    attn_block_unref(pool, block);
    attn_block_unref(pool, next);
}

/* Memory of sizes that come and go does not add up. */
TEST(blockpool_a_size_out_of_use_gives_its_slab_back)
{
    struct attn_block *block;
    unsigned char resident;
    for (size_t i = 0; i < 2; i++) {
        ck_assert_int_eq(attn_block_alloc(&block, pool, LARGE + 64 * i), ATTN_OK);
        unsigned char *data = block->data;
        memset(data, 1, LARGE);
        attn_block_unref(pool, block);
        ck_assert_int_eq(attn_block_alloc(&block, pool, OTHER + 64 * i), ATTN_OK);
        ck_assert(mincore(data, 1, &resident) != 0 || (resident & 1) == 0);
        attn_block_unref(pool, block);
    }
}

SUITE(blockpool)
