/* test_cache_stored.c: blocks that a store keeps: what it is told, and caches whose tokens come
 * from blocks' bytes, of each kv_dtype, with forks, truncations and windows; and caches that leave
 * memory. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "attn_state.h"
#include "caches/kvcache.h"
#include "models/model.h"
#include "rng.h"
#include "suites.h"

#define GROUPS 2
#define WIDTH 20
#define LENGTH 150 /* two blocks and 22 tokens */

static struct attn_model *model;
static struct attn_cache_pool *pool;
static struct attn_error error;
static struct rng rng;

/* Places that the pool has given up. */
static struct attn_stored dropped[64];
static size_t num_dropped;

static void note_dropped(void *context, const struct attn_stored *place)
{
    ck_assert_ptr_eq(context, &num_dropped);
    ck_assert_uint_lt(num_dropped, 64);
    dropped[num_dropped++] = *place;
}

static void open_model(enum attn_dtype kv_dtype, const char *config)
{
    const struct attn_model_options options = {.kv_dtype = kv_dtype};
    ck_assert_int_eq(attn_model_open_random(&model, config, strlen(config), &options, &error),
                     ATTN_OK);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)8 << 20), ATTN_OK);
    attn_cache_pool_set_dropped(pool, note_dropped, &num_dropped);
    num_dropped = 0;
    rng = rng_seeded(39);
}

static const char full[] = "{\"hidden_size\":40,\"num_attention_heads\":2,"
                           "\"num_key_value_heads\":2,\"head_dim\":20}";

static void close_model(void)
{
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    attn_cache_pool_free(pool);
    attn_model_close(model);
}

static struct attn_cache *new_cache(void)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, 1000, &error), ATTN_OK);
    return cache;
}

static void write_tokens(struct attn_cache *cache, size_t count)
{
    float *key = rng_floats(&rng, GROUPS * count * WIDTH, 3);
    float *value = rng_floats(&rng, GROUPS * count * WIDTH, 3);
    ck_assert_int_eq(attn_cache_write(cache, 0, count, key, value, &error), ATTN_OK);
    free(key);
    free(value);
}

static struct attn_block *block_at(const struct attn_cache *cache, size_t i)
{
    size_t count;
    struct attn_block *const *blocks = attn_cache_blocks(&count, cache, 0);
    ck_assert_uint_lt(i, count);
    return blocks[i];
}

/* Says that the store has the first `rows` tokens of block i in a slot of that number. */
static void store_block(const struct attn_cache *cache, size_t i, uint64_t slot, uint32_t rows)
{
    attn_block_set_stored(block_at(cache, i), &(struct attn_stored){.slot = slot, .rows = rows});
}

static uint32_t rows_stored(const struct attn_cache *cache, size_t i)
{
    return attn_block_stored(block_at(cache, i)).rows;
}

/* The same numbers in the first tokens of two caches, bit for bit. */
static void expect_same(const struct attn_cache *a, const struct attn_cache *b, size_t count)
{
    float *numbers = malloc(4 * GROUPS * count * WIDTH * sizeof *numbers);
    const size_t part = GROUPS * count * WIDTH;
    attn_cache_read(numbers, numbers + part, a, 0, count);
    attn_cache_read(numbers + 2 * part, numbers + 3 * part, b, 0, count);
    ck_assert_mem_eq(numbers, numbers + 2 * part, 2 * part * sizeof *numbers);
    free(numbers);
}

/* A cache of that length, all of its blocks absent. */
static struct attn_cache *absent_copy(size_t length)
{
    struct attn_cache *cache = new_cache();
    for (size_t i = 0; i * 64 < length; i++) {
        const size_t end = length < i * 64 + 64 ? length : i * 64 + 64;
        const struct attn_stored stored = {.slot = 100 + i, .rows = (uint32_t)(end - i * 64)};
        ck_assert_int_eq(attn_cache_append_stored(cache, 0, end, NULL, &stored, &error), ATTN_OK);
        ck_assert_uint_eq(attn_block_absent(block_at(cache, i)), end - i * 64);
    }
    return cache;
}

/* Fills the blocks of a cache with the bytes that another's have. */
static void fill_from(struct attn_cache *cache, const struct attn_cache *from)
{
    size_t count, size;
    (void)attn_cache_blocks(&count, cache, 0);
    ck_assert_int_eq(attn_cache_admit(cache, 0, &error), ATTN_OK);
    for (size_t i = 0; i < count; i++) {
        if (attn_block_absent(block_at(cache, i)) == 0)
            continue;
        const void *bytes = attn_block_bytes_of(&size, block_at(from, i));
        ck_assert_uint_eq(size, attn_block_bytes(attn_model_layer(model, 0)));
        attn_block_fill(block_at(cache, i), attn_model_layer(model, 0), bytes);
        ck_assert_uint_eq(attn_block_absent(block_at(cache, i)), 0);
    }
}

/* ---- Absent blocks --------------------------------------------------------------------------- */

START_TEST(test_cache_stored_filled_blocks_are_the_same_bits)
{
    open_model((enum attn_dtype)_i, full);
    struct attn_cache *cache = new_cache();
    write_tokens(cache, LENGTH);
    struct attn_cache *copy = absent_copy(LENGTH);
    ck_assert_uint_eq(attn_cache_length(copy, 0), LENGTH);
    ck_assert_uint_eq(attn_cache_bytes(copy), attn_cache_bytes(cache));
    fill_from(copy, cache);
    expect_same(copy, cache, LENGTH);
    attn_cache_free(copy);
    ck_assert_uint_eq(num_dropped, 3);
    ck_assert_uint_eq(dropped[0].slot + dropped[1].slot + dropped[2].slot, 303);
    attn_cache_free(cache);
    ck_assert_uint_eq(num_dropped, 3);
    close_model();
}
END_TEST

/* Tokens that are appended before the block's first ones are there. */
START_TEST(test_cache_stored_tokens_may_follow_absent_ones)
{
    open_model((enum attn_dtype)_i, full);
    struct attn_cache *cache = new_cache(), *fork;
    write_tokens(cache, LENGTH);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, LENGTH, &error), ATTN_OK);
    struct attn_cache *copy = absent_copy(LENGTH);
    const struct rng then = rng;
    write_tokens(copy, 50); /* into the third block, and into a fourth */
    rng = then;
    write_tokens(fork, 50);
    ck_assert_uint_eq(attn_block_absent(block_at(copy, 2)), 22);
    fill_from(copy, cache);
    expect_same(copy, fork, LENGTH + 50);
    attn_cache_free(copy);

    copy = absent_copy(LENGTH); /* the same after a truncation within the block */
    struct attn_cache *shorter;
    ck_assert_int_eq(attn_cache_fork(&shorter, cache, 140, &error), ATTN_OK);
    ck_assert(attn_cache_truncate(copy, 140));
    ck_assert_uint_eq(rows_stored(copy, 2), 22);
    rng = then;
    write_tokens(copy, 5);
    ck_assert_uint_eq(attn_block_absent(block_at(copy, 2)), 12);
    ck_assert_uint_eq(rows_stored(copy, 2), 12);
    rng = then;
    write_tokens(shorter, 5);
    fill_from(copy, cache);
    expect_same(copy, shorter, 145);
    attn_cache_free(shorter);
    attn_cache_free(copy);
    attn_cache_free(fork);
    attn_cache_free(cache);
    close_model();
}
END_TEST

START_TEST(test_cache_stored_caches_share_absent_blocks)
{
    open_model(ATTN_F32, full);
    struct attn_cache *cache = new_cache(), *copy = absent_copy(LENGTH), *fork;
    struct attn_cache *second = new_cache();
    write_tokens(cache, LENGTH);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(attn_cache_append_stored(second, 0, i < 2 ? 64 * (i + 1) : 130,
                                                  block_at(copy, i), NULL, &error),
                         ATTN_OK);
    ck_assert_int_eq(attn_cache_fork(&fork, copy, LENGTH, &error), ATTN_OK);
    float row[GROUPS * WIDTH] = {1};
    ck_assert_int_eq(attn_cache_write(second, 0, 1, row, row, &error), ATTN_INVALID);
    ck_assert_uint_eq(attn_cache_length(second, 0), 130);
    fill_from(copy, cache);
    expect_same(second, cache, 130);
    expect_same(fork, cache, LENGTH);
    ck_assert_int_eq(attn_cache_write(second, 0, 1, row, row, &error), ATTN_OK);
    expect_same(fork, cache, LENGTH);
    attn_cache_free(copy);
    attn_cache_free(fork);
    ck_assert_uint_eq(num_dropped, 1); /* its third block alone */
    ck_assert_uint_eq(dropped[0].slot, 102);
    attn_cache_free(second);
    ck_assert_uint_eq(num_dropped, 3);
    attn_cache_free(cache);
    close_model();
}
END_TEST

START_TEST(test_cache_stored_a_layer_is_lengthened_by_a_block_at_most)
{
    open_model(ATTN_F32, full);
    struct attn_cache *cache = new_cache();
    struct attn_stored stored = {.slot = 1, .rows = 64};
    ck_assert_int_eq(attn_cache_append_stored(cache, 0, 65, NULL, &stored, &error), ATTN_INVALID);
    ck_assert_int_eq(attn_cache_append_stored(cache, 0, 0, NULL, &stored, &error), ATTN_INVALID);
    ck_assert_int_eq(attn_cache_append_stored(cache, 1, 10, NULL, &stored, &error), ATTN_NOT_FOUND);
    stored.rows = 9; /* the store does not have the tenth */
    ck_assert_int_eq(attn_cache_append_stored(cache, 0, 10, NULL, &stored, &error), ATTN_INVALID);
    stored.rows = 10;
    ck_assert_int_eq(attn_cache_append_stored(cache, 0, 10, NULL, &stored, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_append_stored(cache, 0, 20, NULL, &stored, &error), ATTN_INVALID);
    attn_cache_free(cache);
    ck_assert_uint_eq(num_dropped, 1);
    close_model();
}
END_TEST

/* ---- What the store is told ------------------------------------------------------------------ */

START_TEST(test_cache_stored_written_tokens_are_not_those_of_the_store)
{
    open_model(ATTN_F32, full);
    struct attn_cache *cache = new_cache();
    write_tokens(cache, LENGTH);
    for (size_t i = 0; i < 3; i++)
        store_block(cache, i, i, i < 2 ? 64 : 22);
    write_tokens(cache, 10); /* after what is stored */
    ck_assert_uint_eq(rows_stored(cache, 2), 22);
    ck_assert(attn_cache_truncate(cache, 140));
    ck_assert_uint_eq(rows_stored(cache, 2), 22);
    write_tokens(cache, 1); /* over it */
    ck_assert_uint_eq(rows_stored(cache, 2), 12);
    ck_assert_uint_eq(num_dropped, 0);
    ck_assert(attn_cache_truncate(cache, 128));
    ck_assert_uint_eq(num_dropped, 1);
    ck_assert_uint_eq(dropped[0].slot, 2);
    ck_assert(attn_cache_truncate(cache, 70));
    write_tokens(cache, 1);
    ck_assert_uint_eq(rows_stored(cache, 1), 6);
    write_tokens(cache, 60); /* a third block, which is nowhere */
    ck_assert_uint_eq(rows_stored(cache, 0), 64);
    ck_assert_uint_eq(rows_stored(cache, 2), 0);
    attn_cache_free(cache);
    ck_assert_uint_eq(num_dropped, 3);
    close_model();
}
END_TEST

/* A block that is copied leaves its place to those who still have it. */
START_TEST(test_cache_stored_a_copied_block_is_nowhere)
{
    open_model(ATTN_F32, full);
    struct attn_cache *cache = new_cache(), *fork, *frozen;
    write_tokens(cache, LENGTH);
    for (size_t i = 0; i < 3; i++)
        store_block(cache, i, i, i < 2 ? 64 : 22);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, LENGTH, &error), ATTN_OK);
    write_tokens(fork, 1);
    ck_assert_uint_eq(rows_stored(fork, 2), 0);
    ck_assert_uint_eq(rows_stored(fork, 1), 64);
    ck_assert_uint_eq(rows_stored(cache, 2), 22);
    ck_assert_int_eq(attn_cache_freeze(&frozen, cache, &error), ATTN_OK);
    write_tokens(cache, 1);
    ck_assert_uint_eq(rows_stored(cache, 2), 0);
    ck_assert_uint_eq(rows_stored(frozen, 2), 22);
    ck_assert_uint_eq(num_dropped, 0);
    attn_cache_free(frozen);
    ck_assert_uint_eq(num_dropped, 1);
    attn_cache_free(cache);
    ck_assert_uint_eq(num_dropped, 1);
    attn_cache_free(fork);
    ck_assert_uint_eq(num_dropped, 3);
    close_model();
}
END_TEST

START_TEST(test_cache_stored_what_a_window_forgets_is_dropped)
{
    open_model(ATTN_F32, "{\"hidden_size\":40,\"num_attention_heads\":2,\"num_key_value_heads\":2,"
                         "\"head_dim\":20,\"sliding_window\":8,"
                         "\"layer_types\":[\"sliding_attention\"],\"num_hidden_layers\":1}");
    struct attn_cache *cache = new_cache();
    write_tokens(cache, LENGTH);
    for (size_t i = 0; i < 3; i++)
        store_block(cache, i, i, i < 2 ? 64 : 22);
    attn_cache_forget(cache, 0, LENGTH - 1);
    ck_assert_uint_eq(num_dropped, 2);
    struct attn_cache *copy = new_cache();
    const struct attn_stored stored = {.slot = 9, .rows = 22};
    ck_assert_int_eq(attn_cache_begin_at(copy, 0, 128, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_append_stored(copy, 0, LENGTH, NULL, &stored, &error), ATTN_OK);
    fill_from(copy, cache);
    expect_same(copy, cache, LENGTH);
    attn_cache_free(copy);
    attn_cache_free(cache);
    close_model();
}
END_TEST

/* ---- Leaving memory -------------------------------------------------------------------------- */

/* A cache of LENGTH tokens that the store has. */
static struct attn_cache *stored_cache(void)
{
    struct attn_cache *cache = new_cache();
    write_tokens(cache, LENGTH);
    for (size_t i = 0; i < 3; i++)
        store_block(cache, i, i, i < 2 ? 64 : 22);
    return cache;
}

/* Which of a cache's three blocks are in memory: "110" where the third is not. */
static void expect_memory(const struct attn_cache *cache, const char *want)
{
    size_t size;
    for (size_t i = 0; i < 3; i++) {
        const bool has = attn_block_bytes_of(&size, block_at(cache, i)) != NULL;
        ck_assert_msg(has == (want[i] == '1'), "block %zu", i);
        if (!has)
            ck_assert_uint_eq(attn_block_absent(block_at(cache, i)), rows_stored(cache, i));
    }
}

START_TEST(test_cache_stored_a_block_leaves_memory_with_the_last_cache_that_uses_it)
{
    open_model((enum attn_dtype)_i, full);
    const struct rng then = rng;
    struct attn_cache *cache = stored_cache(), *fork, *twin = new_cache();
    rng = then;
    write_tokens(twin, LENGTH);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, LENGTH, &error), ATTN_OK);
    const size_t before = attn_cache_pool_used(pool);
    attn_cache_evict(cache, 0);
    expect_memory(cache, "111");
    ck_assert_uint_eq(attn_cache_pool_used(pool), before);
    attn_cache_evict(fork, 0);
    expect_memory(fork, "000");
    ck_assert_uint_lt(attn_cache_pool_used(pool), before * 3 / 5); /* the twin and heads */
    fill_from(cache, twin);
    ck_assert(attn_cache_is_evicted(fork, 0) && !attn_cache_is_evicted(cache, 0));
    expect_same(cache, twin, LENGTH);
    fill_from(fork, twin);
    ck_assert_uint_eq(attn_cache_pool_used(pool), before);
    write_tokens(fork, 1); /* into a copy */
    attn_cache_evict(cache, 0);
    expect_memory(cache, "110");
    attn_cache_free(fork);
    expect_memory(cache, "000");
    attn_cache_free(cache);
    attn_cache_free(twin);
    ck_assert_uint_eq(num_dropped, 3);
    close_model();
}
END_TEST

START_TEST(test_cache_stored_what_the_store_lacks_stays_in_memory)
{
    open_model(ATTN_F32, full);
    struct attn_cache *cache = stored_cache();
    write_tokens(cache, 1); /* the store has 22 tokens of 23 */
    attn_cache_evict(cache, 0);
    expect_memory(cache, "001");
    ck_assert_uint_eq(attn_block_absent(block_at(cache, 2)), 0);
    ck_assert(attn_cache_truncate(cache, LENGTH)); /* and now all */
    ck_assert_int_eq(attn_cache_admit(cache, 0, &error), ATTN_OK);
    attn_cache_evict(cache, 0);
    expect_memory(cache, "000");
    attn_cache_free(cache);
    close_model();
}
END_TEST

/* Tokens of a cache that is gone, which the store never had, keep no block in memory. */
START_TEST(test_cache_stored_forks_need_their_own_tokens_alone)
{
    open_model(ATTN_F32, full);
    struct attn_cache *cache = stored_cache(), *forks[2];
    write_tokens(cache, 1);
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(attn_cache_fork(&forks[i], cache, 140, &error), ATTN_OK);
    attn_cache_free(cache);
    attn_cache_evict(forks[0], 0);
    expect_memory(forks[0], "111");
    attn_cache_evict(forks[1], 0);
    expect_memory(forks[0], "000");
    attn_cache_free(forks[0]);
    attn_cache_free(forks[1]);
    close_model();
}
END_TEST

/* A snapshot writes the frozen copy's blocks meanwhile. */
START_TEST(test_cache_stored_a_frozen_block_stays_in_memory_until_its_copy_is_freed)
{
    open_model(ATTN_F32, full);
    struct attn_cache *cache = stored_cache(), *frozen;
    write_tokens(cache, 1);
    ck_assert_int_eq(attn_cache_freeze(&frozen, cache, &error), ATTN_OK);
    attn_cache_evict(cache, 0);
    expect_memory(cache, "111");
    store_block(frozen, 2, 9, 23);
    expect_memory(cache, "111");
    attn_cache_free(frozen);
    expect_memory(cache, "000");
    attn_cache_free(cache);
    close_model();
}
END_TEST

START_TEST(test_cache_stored_an_evicted_cache_comes_back_when_the_budget_has_room)
{
    open_model(ATTN_F32, full);
    attn_cache_pool_free(pool);
    ck_assert_int_eq(attn_cache_pool_new(&pool, 4 * attn_block_bytes(attn_model_layer(model, 0))),
                     ATTN_OK);
    struct attn_cache *cache = stored_cache(), *other = new_cache();
    attn_cache_evict(cache, 0);
    write_tokens(other, LENGTH);
    const size_t used = attn_cache_pool_used(pool);
    ck_assert_int_eq(attn_cache_admit(cache, 0, &error), ATTN_POOL_FULL);
    ck_assert(attn_cache_is_evicted(cache, 0));
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    expect_memory(cache, "000");
    attn_cache_free(other);
    ck_assert_int_eq(attn_cache_admit(cache, 0, &error), ATTN_OK);
    ck_assert_uint_eq(attn_cache_pool_used(pool), attn_cache_bytes(cache));
    attn_cache_free(cache);
    close_model();
}
END_TEST

START_TEST(test_cache_stored_forks_of_an_evicted_cache_are_evicted)
{
    open_model(ATTN_F32, full);
    const struct rng then = rng;
    struct attn_cache *cache = stored_cache(), *fork, *twin = new_cache();
    rng = then;
    write_tokens(twin, LENGTH);
    attn_cache_evict(cache, 0);
    const size_t used = attn_cache_pool_used(pool);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, 140, &error), ATTN_OK);
    ck_assert(attn_cache_is_evicted(fork, 0));
    ck_assert_uint_lt(attn_cache_pool_used(pool), used + 1024);
    attn_cache_free(cache);
    expect_memory(fork, "000");
    fill_from(fork, twin);
    expect_same(fork, twin, 140);
    attn_cache_free(fork);
    attn_cache_free(twin);
    close_model();
}
END_TEST

Suite *suite_cache_stored(void)
{
    Suite *suite = suite_create("cache_stored");
    TCase *tests = tcase_create("cache_stored");
    tcase_add_loop_test(tests, test_cache_stored_filled_blocks_are_the_same_bits, 0,
                        ATTN_NUM_NUMBER_FORMATS);
    tcase_add_loop_test(tests, test_cache_stored_tokens_may_follow_absent_ones, 0,
                        ATTN_NUM_NUMBER_FORMATS);
    tcase_add_test(tests, test_cache_stored_caches_share_absent_blocks);
    tcase_add_test(tests, test_cache_stored_a_layer_is_lengthened_by_a_block_at_most);
    tcase_add_test(tests, test_cache_stored_written_tokens_are_not_those_of_the_store);
    tcase_add_test(tests, test_cache_stored_a_copied_block_is_nowhere);
    tcase_add_test(tests, test_cache_stored_what_a_window_forgets_is_dropped);
    tcase_add_loop_test(tests,
                        test_cache_stored_a_block_leaves_memory_with_the_last_cache_that_uses_it, 0,
                        ATTN_NUM_NUMBER_FORMATS);
    tcase_add_test(tests, test_cache_stored_what_the_store_lacks_stays_in_memory);
    tcase_add_test(tests, test_cache_stored_forks_need_their_own_tokens_alone);
    tcase_add_test(tests, test_cache_stored_a_frozen_block_stays_in_memory_until_its_copy_is_freed);
    tcase_add_test(tests, test_cache_stored_an_evicted_cache_comes_back_when_the_budget_has_room);
    tcase_add_test(tests, test_cache_stored_forks_of_an_evicted_cache_are_evicted);
    suite_add_tcase(suite, tests);
    return suite;
}
