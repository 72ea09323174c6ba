/* test_kvcache.c: caches alone: budget, sharing, truncation, and that failures change nothing. */
#include <check.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "caches/kvcache.h"
#include "opened.h"
#include "suites.h"

#define GROUPS 2
#define WIDTH 4
#define BLOCK_BYTES ((size_t)64 * GROUPS * 2 * WIDTH * sizeof(float))
#define LINK_BYTES (2 * sizeof(void *)) /* of each cache that holds a block beside the first */

static struct attn_model *model;
static struct attn_cache_pool *pool;
static struct attn_error error;

static void setup_as(size_t budget, const char *more)
{
    char config[256];
    snprintf(config, sizeof config,
             "{\"hidden_size\":16,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
             "\"num_hidden_layers\":2%s}",
             more);
    model = opened_random(config, NULL);
    ck_assert_int_eq(attn_cache_pool_new(&pool, budget), ATTN_OK);
}

static void setup_with(size_t budget) { setup_as(budget, ""); }

static void setup(void) { setup_with(8 * (BLOCK_BYTES + LINK_BYTES)); }

static void teardown(void)
{
    free_unused_pool(pool);
    attn_model_close(model);
}

static struct attn_cache *new_cache(size_t max_length)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, max_length, &error), ATTN_OK);
    return cache;
}

/* Appends tokens whose keys and values are all `value`. */
static enum attn_status append(struct attn_cache *cache, size_t layer, size_t count, float value)
{
    float row[GROUPS * WIDTH];
    size_t length = attn_cache_length(cache, layer);
    for (size_t i = 0; i < GROUPS * WIDTH; i++)
        row[i] = value;
    enum attn_status status = attn_cache_reserve(cache, layer, length, count, &error);
    if (status != ATTN_OK)
        return status;
    for (size_t i = 0; i < count; i++)
        attn_cache_put(cache, layer, length + i, row, row);
    attn_cache_publish(cache, layer, length + count);
    return ATTN_OK;
}

static float value_at(const struct attn_cache *cache, size_t layer, size_t token)
{
    size_t length = attn_cache_length(cache, layer);
    float *key = malloc(GROUPS * length * WIDTH * sizeof *key);
    attn_cache_read(key, NULL, cache, layer, length);
    float value = key[(length + token) * WIDTH + 1]; /* head 1 */
    free(key);
    return value;
}

CASE(cache, setup, teardown, 0)

TEST(kvcache_layers_advance_on_their_own)
{
    struct attn_cache *cache = new_cache(1000);
    ck_assert_int_eq(append(cache, 0, 100, 1), ATTN_OK);
    ck_assert_int_eq(append(cache, 1, 3, 2), ATTN_OK);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 100);
    ck_assert_uint_eq(attn_cache_length(cache, 1), 3);
    ck_assert_uint_eq(attn_cache_length(cache, 7), 0);
    ck_assert_uint_eq(attn_cache_bytes(cache), 3 * BLOCK_BYTES);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 3 * BLOCK_BYTES);
    ck_assert_float_eq(value_at(cache, 0, 99), 1);
    ck_assert_float_eq(value_at(cache, 1, 0), 2);
    attn_cache_free(cache);
}

TEST(kvcache_append_past_max_length_returns_full_and_keeps_length)
{
    struct attn_cache *cache = new_cache(10);
    ck_assert_int_eq(append(cache, 0, 10, 1), ATTN_OK);
    ck_assert_int_eq(append(cache, 0, 1, 2), ATTN_CACHE_FULL);
    ck_assert_int_eq(append(cache, 0, SIZE_MAX, 2), ATTN_CACHE_FULL);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 10);
    ck_assert_uint_eq(attn_cache_pool_used(pool), BLOCK_BYTES);
    attn_cache_free(cache);
}

TEST(kvcache_append_past_budget_returns_pool_full_and_takes_no_block)
{
    struct attn_cache *first = new_cache(10000), *second = new_cache(10000);
    ck_assert_int_eq(append(first, 0, 6 * 64, 1), ATTN_OK);
    ck_assert_int_eq(append(second, 0, 3 * 64, 2), ATTN_POOL_FULL);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 6 * BLOCK_BYTES);
    ck_assert_int_eq(append(second, 0, 2 * 64, 2), ATTN_OK);
    attn_cache_free(first);
    ck_assert_int_eq(append(second, 0, 6 * 64, 2), ATTN_OK);
    attn_cache_free(second);
}

TEST(kvcache_unreserve_returns_blocks_that_were_not_published)
{
    struct attn_cache *cache = new_cache(1000);
    ck_assert_int_eq(append(cache, 0, 10, 1), ATTN_OK);
    ck_assert_int_eq(attn_cache_reserve(cache, 0, 10, 200, &error), ATTN_OK);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 4 * BLOCK_BYTES);
    attn_cache_unreserve(cache, 0);
    ck_assert_uint_eq(attn_cache_pool_used(pool), BLOCK_BYTES);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 10);
    attn_cache_free(cache);
}

TEST(kvcache_fork_shares_blocks_until_one_side_writes)
{
    struct attn_cache *cache = new_cache(1000), *fork;
    ck_assert_int_eq(append(cache, 0, 130, 1), ATTN_OK);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, 100, &error), ATTN_OK);
    ck_assert_uint_eq(attn_cache_length(fork, 0), 100);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 3 * BLOCK_BYTES + 2 * LINK_BYTES);
    ck_assert_int_eq(append(fork, 0, 5, 2), ATTN_OK); /* copies the second block */
    ck_assert_uint_eq(attn_cache_pool_used(pool), 4 * BLOCK_BYTES + LINK_BYTES);
    ck_assert_float_eq(value_at(fork, 0, 99), 1);
    ck_assert_float_eq(value_at(fork, 0, 100), 2);
    ck_assert_float_eq(value_at(cache, 0, 100), 1);
    attn_cache_free(cache);
    ck_assert_float_eq(value_at(fork, 0, 0), 1);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 2 * BLOCK_BYTES); /* all blocks are its own now */
    attn_cache_free(fork);
}

/* Blocks that are shared cost a cache its list only. */
TEST(kvcache_places_of_shared_blocks_are_charged_until_they_are_dropped)
{
    struct attn_cache *cache = new_cache(1000), *fork;
    ck_assert_int_eq(append(cache, 0, 4 * 64, 1), ATTN_OK);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, 1000, &error), ATTN_OK);
    ck_assert_int_eq(append(fork, 0, 1, 2), ATTN_OK);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 5 * BLOCK_BYTES + 4 * LINK_BYTES);
    attn_cache_truncate(fork, 64);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 4 * BLOCK_BYTES + LINK_BYTES);
    attn_cache_truncate(fork, 0);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 4 * BLOCK_BYTES);
    ck_assert_float_eq(value_at(cache, 0, 255), 1);
    attn_cache_free(fork);
    attn_cache_free(cache);
}

/* The charge does not depend on who allocated the blocks. */
TEST_EACH(kvcache_blocks_that_one_cache_is_left_with_are_charged_no_places, 3)
{
    struct attn_cache *caches[3] = {new_cache(1000)}, *frozen;
    ck_assert_int_eq(append(caches[0], 0, 2 * 64, 1), ATTN_OK);
    for (size_t i = 1; i < 3; i++)
        ck_assert_int_eq(attn_cache_fork(&caches[i], caches[0], 1000, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_freeze(&frozen, caches[0], &error), ATTN_OK);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(attn_cache_pool_used(pool), 2 * (BLOCK_BYTES + (2 - i) * LINK_BYTES));
        attn_cache_free(caches[((size_t)_i + i) % 3]);
    }
    ck_assert_uint_eq(attn_cache_pool_used(pool), 2 * BLOCK_BYTES);
    attn_cache_free(frozen);
}

/* Lists as the allocator counts them: of forks with one token of their own, and of caches truncated
 * to one token. */
TEST(kvcache_lists_take_no_more_memory_than_the_budget_says)
{
    enum { FORKS = 32, BLOCKS = 2000 };
    struct attn_cache *cache, *forks[FORKS];
    teardown();
    setup_with((size_t)64 << 20);
    cache = new_cache((BLOCKS + 1) * 64);
    ck_assert_int_eq(append(cache, 0, BLOCKS * 64, 1), ATTN_OK);
    size_t used = attn_cache_pool_used(pool), heap = mallinfo2().uordblks;
    for (size_t i = 0; i < FORKS; i++) {
        ck_assert_int_eq(attn_cache_fork(&forks[i], cache, SIZE_MAX, &error), ATTN_OK);
        ck_assert_int_eq(append(forks[i], 0, 1, 2), ATTN_OK);
    }
    ck_assert_uint_le(mallinfo2().uordblks - heap, attn_cache_pool_used(pool) - used);
    for (size_t i = 0; i < FORKS; i++)
        attn_cache_truncate(forks[i], 1);
    ck_assert_uint_le(mallinfo2().uordblks,
                      heap + 2 * FORKS * BLOCK_BYTES); /* some blocks stay idle */
    for (size_t i = 0; i < FORKS; i++)
        attn_cache_free(forks[i]);
    attn_cache_free(cache);
}

/* The first layer forgets, the second one keeps everything. */
TEST(kvcache_lowest_length_is_that_of_the_layer_that_forgot_most)
{
    teardown();
    setup_as((size_t)1 << 20,
             ",\"sliding_window\":70,\"layer_types\":[\"sliding_attention\",\"full_attention\"]");
    struct attn_cache *cache = new_cache(1000);
    for (size_t layer = 0; layer < 2; layer++)
        ck_assert_int_eq(append(cache, layer, 300, 1), ATTN_OK);
    ck_assert_uint_eq(attn_cache_lowest_length(cache), 0);
    attn_cache_forget(cache, 0, 299);
    ck_assert_uint_eq(attn_cache_first(cache, 0), 192);
    ck_assert_uint_eq(attn_cache_lowest_length(cache), 192 + 70 - 1);
    attn_cache_free(cache);
}

TEST(kvcache_a_fork_whose_list_does_not_fit_is_refused_and_leaves_nothing)
{
    struct attn_cache *cache = new_cache(1000), *fork, *other;
    ck_assert_int_eq(append(cache, 0, 8 * 64, 1), ATTN_OK);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, 1000, &error), ATTN_OK);
    size_t used = attn_cache_pool_used(pool);
    ck_assert_int_eq(attn_cache_fork(&other, cache, 1000, &error), ATTN_POOL_FULL);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    attn_cache_free(fork);
    attn_cache_free(cache);
}

TEST(kvcache_writing_a_shared_block_beyond_budget_changes_nothing)
{
    struct attn_cache *cache = new_cache(1000), *fork;
    ck_assert_int_eq(append(cache, 0, 8 * 64 - 1, 1), ATTN_OK);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, 1000, &error), ATTN_OK);
    ck_assert_int_eq(append(fork, 0, 1, 2), ATTN_POOL_FULL);
    ck_assert_uint_eq(attn_cache_length(fork, 0), 8 * 64 - 1);
    ck_assert_float_eq(value_at(cache, 0, 8 * 64 - 2), 1);
    attn_cache_free(fork);
    ck_assert_int_eq(append(cache, 0, 1, 3), ATTN_OK); /* no longer shared */
    attn_cache_free(cache);
}

TEST(kvcache_frozen_copy_needs_nothing_of_a_full_budget_and_stays_as_it_was)
{
    struct attn_cache *cache = new_cache(1000), *frozen;
    float key[GROUPS * WIDTH];
    ck_assert_int_eq(append(cache, 0, 2 * 64 + 8, 1), ATTN_OK);
    ck_assert_int_eq(append(cache, 1, 3 * 64, 2), ATTN_OK);
    struct attn_cache *rest = new_cache(1000);
    while (append(rest, 0, 64, 3) == ATTN_OK)
        continue;
    ck_assert_int_eq(error.status, ATTN_POOL_FULL);
    size_t used = attn_cache_pool_used(pool);
    ck_assert_int_eq(attn_cache_freeze(&frozen, cache, &error), ATTN_OK);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    ck_assert_uint_eq(attn_cache_frozen_bytes(cache),
                      attn_cache_memory(model) + 6 * sizeof(void *));
    attn_cache_free(rest);
    attn_cache_truncate(cache, 100);
    ck_assert_int_eq(append(cache, 0, 28, 4), ATTN_OK);
    ck_assert_uint_eq(attn_cache_length(frozen, 0), 2 * 64 + 8);
    ck_assert_uint_eq(attn_cache_length(frozen, 1), 3 * 64);
    attn_cache_read_from(key, NULL, frozen, 0, 110, 1);
    ck_assert(key[0] == 1);
    attn_cache_read_from(key, NULL, cache, 0, 110, 1);
    ck_assert(key[0] == 4);
    attn_cache_free(cache);
    attn_cache_read_from(key, NULL, frozen, 1, 191, 1);
    ck_assert(key[0] == 2);
    attn_cache_free(frozen);
}

TEST(kvcache_truncate_forgets_and_returns_blocks)
{
    struct attn_cache *cache = new_cache(1000);
    ck_assert_int_eq(append(cache, 0, 130, 1), ATTN_OK);
    ck_assert_int_eq(append(cache, 1, 20, 1), ATTN_OK);
    attn_cache_truncate(cache, 64);
    ck_assert_uint_eq(attn_cache_length(cache, 0), 64);
    ck_assert_uint_eq(attn_cache_length(cache, 1), 20);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 2 * BLOCK_BYTES);
    ck_assert_int_eq(append(cache, 0, 1, 5), ATTN_OK);
    ck_assert_float_eq(value_at(cache, 0, 64), 5);
    attn_cache_free(cache);
}

TEST(kvcache_claim_is_exclusive)
{
    struct attn_cache *cache = new_cache(10);
    ck_assert(attn_cache_claim(cache));
    ck_assert(!attn_cache_claim(cache));
    attn_cache_unclaim(cache);
    ck_assert(attn_cache_claim(cache));
    attn_cache_free(cache);
}

TEST(kvcache_refuses_impossible_max_length)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, 0, &error), ATTN_OUT_OF_RANGE);
    ck_assert_str_eq(error.param, "max_length");
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, SIZE_MAX, &error), ATTN_OUT_OF_RANGE);
}

SUITE(kvcache)
