/* test_sharing.c: caches that share blocks are written as files and read again, in any order, with
 * the record of what they shared: they take as much of a pool as before, and no cache is changed by
 * what is done to the others. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_limits.h"
#include "attn_state.h"
#include "caches/kvcache.h"
#include "rng.h"
#include "store/sharing.h"
#include "suites.h"

#define GROUPS 2
#define HEAD 6
#define ROW (GROUPS * HEAD)
#define LAYERS 2
#define LONGEST 300
#define MOST 40 /* caches */

static struct attn_model *model;
static struct attn_error error;

static void setup_with(enum attn_dtype kv_dtype, const char *more)
{
    char config[256];
    snprintf(config, sizeof config,
             "{\"hidden_size\":24,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
             "\"num_hidden_layers\":2%s}",
             more);
    const struct attn_model_options options = {.kv_dtype = kv_dtype};
    ck_assert_int_eq(attn_model_open_random(&model, config, strlen(config), &options, &error),
                     ATTN_OK);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
}

static void setup_as(enum attn_dtype kv_dtype) { setup_with(kv_dtype, ""); }

static void setup(void) { setup_as(ATTN_F32); }

static void teardown(void) { attn_model_close(model); }

static struct attn_cache_pool *new_pool(size_t budget)
{
    struct attn_cache_pool *pool;
    ck_assert_int_eq(attn_cache_pool_new(&pool, budget), ATTN_OK);
    return pool;
}

static void end_pool(struct attn_cache_pool *pool)
{
    ck_assert_uint_eq(attn_cache_pool_used(pool), 0);
    attn_cache_pool_free(pool);
}

static struct attn_cache *new_cache(struct attn_cache_pool *pool)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, LONGEST, &error), ATTN_OK);
    return cache;
}

static struct attn_cache *fork_of(const struct attn_cache *cache, size_t length)
{
    struct attn_cache *fork;
    ck_assert_int_eq(attn_cache_fork(&fork, cache, length, &error), ATTN_OK);
    return fork;
}

/* Appends tokens that depend on `seed` and their position. */
static void append(struct attn_cache *cache, size_t layer, size_t count, unsigned seed)
{
    float key[ROW], value[ROW];
    for (size_t i = 0; i < count; i++) {
        size_t position = attn_cache_length(cache, layer);
        for (size_t j = 0; j < ROW; j++) {
            key[j] = (float)(seed % 97) + 0.37F * (float)(position * ROW + j);
            value[j] = (float)(seed % 89) - 0.11F * (float)(position + layer + j * j);
        }
        ck_assert_int_eq(attn_cache_write(cache, layer, 1, key, value, &error), ATTN_OK);
    }
}

/* ---- Files ----------------------------------------------------------------------------------- */

struct file {
    char *bytes;
    size_t size;
};

static struct file save(const struct attn_cache *cache)
{
    struct attn_export *export;
    ck_assert_int_eq(attn_export_open(&export, cache, NULL, 0, &error), ATTN_OK);
    struct file file = {.size = attn_export_bytes(export)};
    file.bytes = malloc(file.size);
    while (attn_export_run(export, file.bytes, 100000))
        continue;
    attn_export_close(export);
    return file;
}

/* Reads a cache from its file, sharing with `caches` what the records say of `session`, its number
 * from 1 on. */
static struct attn_cache *load(struct attn_cache_pool *pool, const struct file *file,
                               struct attn_cache *const caches[], const struct srv_sharing *sharing,
                               uint64_t session)
{
    struct attn_cache *cache = new_cache(pool);
    struct attn_import *import;
    bool more = true;
    ck_assert_int_eq(attn_import_open(&import, file->bytes, file->size, &error), ATTN_OK);
    ck_assert_int_eq(attn_import_begin(import, cache, &error), ATTN_OK);
    for (size_t i = 0; i < sharing->count; i++) {
        const struct srv_share *share = &sharing->shares[i];
        if (share->session == session && share->blocks > 0)
            ck_assert_int_eq(attn_import_share_blocks(import, share->layer,
                                                      caches[share->parent - 1], share->blocks,
                                                      &error),
                             ATTN_OK);
    }
    while (more) {
        enum attn_status status = attn_import_run(&more, import, 10000, &error);
        ck_assert_msg(status == ATTN_OK, "%s", error.message);
    }
    attn_import_close(import);
    return cache;
}

static void expect_saved(const struct attn_cache *cache, const struct file *want)
{
    struct file now = save(cache);
    ck_assert_uint_eq(now.size, want->size);
    ck_assert(memcmp(now.bytes, want->bytes, now.size) == 0);
    free(now.bytes);
}

/* Finds what the caches share, in the order of a base. */
static struct srv_sharing find_shares(struct attn_cache *const caches[], size_t count,
                                      const size_t order[])
{
    struct srv_sharing sharing = {0};
    for (size_t i = 0; i < count; i++)
        ck_assert(srv_sharing_add(&sharing, order[i] + 1, caches[order[i]], LAYERS));
    srv_sharing_forget_blocks(&sharing);
    return sharing;
}

/* Writes all caches as files, frees them, and reads the files in that order into a pool that has
 * exactly the bytes that they took.  Returns what they take of the new pool. */
static size_t restart(struct attn_cache *caches[], size_t count, const size_t order[],
                      struct attn_cache_pool **pool)
{
    struct file files[MOST];
    struct srv_sharing sharing = find_shares(caches, count, order);
    size_t used = attn_cache_pool_used(*pool);
    for (size_t i = 0; i < count; i++)
        files[i] = save(caches[i]);
    for (size_t i = 0; i < count; i++)
        attn_cache_free(caches[i]);
    end_pool(*pool);
    *pool = new_pool(used);
    for (size_t i = 0; i < count; i++)
        caches[order[i]] = load(*pool, &files[order[i]], caches, &sharing, order[i] + 1);
    srv_sharing_fini(&sharing);
    for (size_t i = 0; i < count; i++) {
        expect_saved(caches[i], &files[i]);
        free(files[i].bytes);
    }
    return attn_cache_pool_used(*pool);
}

static void end_all(struct attn_cache *caches[], size_t count, struct attn_cache_pool *pool)
{
    for (size_t i = 0; i < count; i++)
        attn_cache_free(caches[i]);
    end_pool(pool);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

#define PLACE 16 /* bytes that a shared block takes of the budget, each time but once */

/* A parent of 100 tokens, and four forks: of all of it, one that ends in its first block, one that
 * ends in its second block, and one that goes on from there. */
START_TEST(test_forks_share_what_they_shared_in_whichever_order_they_are_read)
{
    static const size_t orders[][5] = {
        {0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 3, 0, 4, 1}, {3, 4, 0, 1, 2}, {1, 4, 2, 0, 3}};
    struct attn_cache_pool *pool = new_pool((size_t)1 << 20);
    struct attn_cache *caches[5] = {new_cache(pool)};
    append(caches[0], 0, 100, 1);
    caches[1] = fork_of(caches[0], 100);
    caches[2] = fork_of(caches[0], 40);
    caches[3] = fork_of(caches[0], 80);
    caches[4] = fork_of(caches[0], 80);
    append(caches[4], 0, 1, 2);
    const size_t block = attn_block_bytes(attn_model_layer(model, 0));
    ck_assert_uint_eq(attn_cache_pool_used(pool), 3 * block + 6 * PLACE);
    ck_assert_uint_eq(restart(caches, 5, orders[_i], &pool), 3 * block + 6 * PLACE);
    end_all(caches, 5, pool);
}
END_TEST

START_TEST(test_caches_that_share_blocks_go_on_each_for_itself)
{
    static const size_t order[] = {2, 0, 1};
    struct attn_cache_pool *pool = new_pool((size_t)1 << 20);
    struct attn_cache *caches[3] = {new_cache(pool), new_cache(pool)}, *twin;
    append(caches[0], 0, 90, 5);
    append(caches[1], 0, 64, 7); /* leaves room for a block when it is freed */
    caches[2] = fork_of(caches[0], 70);
    twin = fork_of(caches[2], SIZE_MAX);
    append(twin, 0, 1, 6);
    struct file want = save(twin), parent = save(caches[0]);
    attn_cache_free(twin);
    restart(caches, 3, order, &pool);
    attn_cache_free(caches[1]);
    append(caches[2], 0, 1, 6); /* in a slot where the other cache has another token */
    expect_saved(caches[2], &want);
    expect_saved(caches[0], &parent);
    attn_cache_free(caches[2]);
    expect_saved(caches[0], &parent);
    free(want.bytes);
    free(parent.bytes);
    end_all(caches, 1, pool);
}
END_TEST

START_TEST(test_caches_of_equal_tokens_that_share_nothing_take_what_they_took)
{
    static const size_t order[] = {1, 0};
    struct attn_cache_pool *pool = new_pool((size_t)1 << 20);
    struct attn_cache *caches[2] = {new_cache(pool), new_cache(pool)};
    const size_t block = attn_block_bytes(attn_model_layer(model, 0));
    append(caches[0], 0, 40, 1);
    append(caches[1], 0, 40, 1);
    ck_assert_uint_eq(restart(caches, 2, order, &pool), 2 * block);
    end_all(caches, 2, pool);
}
END_TEST

/* Blocks are charged to the caches that hold them, whichever cache had them first. */
START_TEST(test_fork_that_is_left_takes_what_it_would_alone_whoever_goes)
{
    static const size_t orders[][2] = {{0, 1}, {1, 0}};
    struct attn_cache_pool *pool = new_pool((size_t)1 << 20);
    struct attn_cache *caches[2] = {new_cache(pool)};
    const size_t block = attn_block_bytes(attn_model_layer(model, 0));
    append(caches[0], 0, 60, 1);
    caches[1] = fork_of(caches[0], 40);
    ck_assert_uint_eq(restart(caches, 2, orders[_i / 2], &pool), block + PLACE);
    attn_cache_free(caches[_i % 2]);
    ck_assert_uint_eq(attn_cache_pool_used(pool), block);
    end_all(&caches[1 - _i % 2], 1, pool);
}
END_TEST

/* The record names a cache of other tokens, more blocks than that has, and a layer that does not
 * exist. */
START_TEST(test_wrong_record_shares_nothing_and_changes_no_bit)
{
    struct attn_cache_pool *pool = new_pool((size_t)1 << 20);
    struct attn_cache *caches[2] = {new_cache(pool), new_cache(pool)}, *read[2] = {NULL};
    const size_t block = attn_block_bytes(attn_model_layer(model, 0));
    append(caches[0], 0, 100, 1);
    append(caches[1], 0, 70, _i == 0 ? 2 : 1); /* other tokens from the first on, or after 70 */
    if (_i == 1)
        append(caches[1], 0, 130, 2);
    struct file files[] = {save(caches[0]), save(caches[1])};
    struct srv_share shares[] = {{.session = 2, .parent = 1, .layer = 0, .blocks = 9},
                                 {.session = 2, .parent = 1, .layer = 7, .blocks = 1}};
    const struct srv_sharing none = {0}, wrong = {.shares = shares, .count = 2};
    end_all(caches, 2, pool);
    pool = new_pool((size_t)1 << 20);
    read[0] = load(pool, &files[0], read, &none, 1);
    read[1] = load(pool, &files[1], read, &wrong, 2);
    ck_assert_uint_eq(attn_cache_pool_used(pool),
                      _i == 0 ? (2 + 2) * block : (2 + 3) * block + PLACE);
    for (size_t i = 0; i < 2; i++) {
        expect_saved(read[i], &files[i]);
        free(files[i].bytes);
    }
    end_all(read, 2, pool);
}
END_TEST

/* Two forks of 40 tokens go on differently within their block, and the record says of both that
 * they share it. */
START_TEST(test_block_that_a_longer_import_went_on_in_is_compared_to_its_end)
{
    enum { CACHES = 3 };
    struct attn_cache_pool *pool = new_pool((size_t)1 << 20);
    struct attn_cache *caches[CACHES] = {new_cache(pool)}, *read[CACHES] = {NULL};
    struct srv_share shares[] = {{.session = 2, .parent = 1, .layer = 0, .blocks = 1},
                                 {.session = 3, .parent = 1, .layer = 0, .blocks = 1}};
    const struct srv_sharing both = {.shares = shares, .count = 2};
    struct file files[CACHES];
    append(caches[0], 0, 40, 1);
    for (size_t i = 0; i < CACHES; i++) {
        if (i > 0) {
            caches[i] = fork_of(caches[0], 40);
            append(caches[i], 0, 20, (unsigned)i + 1);
        }
        files[i] = save(caches[i]);
    }
    end_all(caches, CACHES, pool);
    pool = new_pool((size_t)1 << 20);
    for (size_t i = 0; i < CACHES; i++)
        read[i] = load(pool, &files[i], read, &both, i + 1);
    for (size_t i = 0; i < CACHES; i++) {
        expect_saved(read[i], &files[i]);
        free(files[i].bytes);
    }
    end_all(read, CACHES, pool);
}
END_TEST

/* After a step has written to a block, an import cannot know how much of it other caches show. */
START_TEST(test_block_that_a_step_went_on_in_is_not_shared_by_imports)
{
    struct attn_cache_pool *pool = new_pool((size_t)1 << 20);
    struct attn_cache *caches[3] = {new_cache(pool)};
    append(caches[0], 0, 20, 1);
    struct file before = save(caches[0]);
    append(caches[0], 0, 20, 2);
    struct file after = save(caches[0]);
    struct srv_share share = {.session = 2, .parent = 1, .layer = 0, .blocks = 1};
    const struct srv_sharing none = {0}, one = {.shares = &share, .count = 1};
    attn_cache_free(caches[0]);
    caches[0] = load(pool, &before, caches, &none, 1);
    append(caches[0], 0, 20, 2);
    caches[1] = load(pool, &before, caches, &one, 2);
    append(caches[1], 0, 20, 3);
    expect_saved(caches[0], &after);
    end_all(caches, 2, pool);
    free(before.bytes);
    free(after.bytes);
}
END_TEST

/* A parent of 200 tokens, itself a fork of one of 100, and its forks of 180, 200 and 150. */
START_TEST(test_forks_of_a_session_that_is_lost_share_with_each_other_and_with_its_parent)
{
    static const size_t order[] = {0, 1, 2, 3, 4};
    struct attn_cache_pool *pool = new_pool((size_t)1 << 20);
    struct attn_cache *caches[5] = {new_cache(pool)}, *read[5] = {NULL};
    struct file files[5];
    const size_t block = attn_block_bytes(attn_model_layer(model, 0));
    append(caches[0], 0, 100, 1);
    caches[1] = fork_of(caches[0], 100);
    append(caches[1], 0, 100, 2);
    caches[2] = fork_of(caches[1], 180);
    caches[3] = fork_of(caches[1], 200);
    caches[4] = fork_of(caches[1], 150);
    struct srv_sharing sharing = find_shares(caches, 5, order);
    for (size_t i = 0; i < 5; i++)
        files[i] = save(caches[i]);
    end_all(caches, 5, pool);
    srv_shares_replace(sharing.shares, sharing.count, 2);
    pool = new_pool((size_t)1 << 20);
    for (size_t i = 0; i < 5; i++)
        read[i] = i == 1 ? new_cache(pool) : load(pool, &files[i], read, &sharing, i + 1);
    /* Two blocks of the first cache, of which the others share one, and three of the others. */
    ck_assert_uint_eq(attn_cache_pool_used(pool), 5 * block + (1 + 3 + 3) * PLACE);
    for (size_t i = 0; i < 5; i++) {
        if (i != 1)
            expect_saved(read[i], &files[i]);
        free(files[i].bytes);
    }
    srv_sharing_fini(&sharing);
    end_all(read, 5, pool);
}
END_TEST

/* Forks, truncates or extends a cache; returns how many caches there are then. */
static size_t change_one(struct attn_cache *caches[], size_t count, struct rng *r)
{
    struct attn_cache *cache = caches[rng_below(r, (unsigned)count)];
    size_t length = attn_cache_length(cache, 0), one = rng_below(r, LONGEST);
    unsigned what = rng_below(r, 8), n = 1 + rng_below(r, 90);
    if (what < 4 && count < MOST) {
        caches[count++] = fork_of(cache, what == 0 ? one : SIZE_MAX);
    } else if (what == 4) {
        attn_cache_truncate(cache, one);
    } else {
        n = length + n > LONGEST ? (unsigned)(LONGEST - length) : n;
        append(cache, 0, n, rng_below(r, 3)); /* some caches get equal tokens */
        if (rng_below(r, 3) > 0 && attn_cache_length(cache, 1) + n <= LONGEST)
            append(cache, 1, n, rng_below(r, 3));
    }
    return count;
}

START_TEST(test_any_family_of_forks_fits_again_where_it_did)
{
    struct rng r = {.state = 77 + (uint64_t)_i};
    teardown();
    setup_as((enum attn_dtype)(_i % 4));
    for (unsigned round = 0; round < 12; round++) {
        struct attn_cache_pool *pool = new_pool((size_t)64 << 20);
        struct attn_cache *caches[MOST] = {new_cache(pool)};
        size_t order[MOST], count = 1;
        for (unsigned i = 0; i < 120; i++)
            count = change_one(caches, count, &r);
        for (size_t i = 0; i < count; i++) {
            size_t j = rng_below(&r, (unsigned)i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        size_t used = attn_cache_pool_used(pool);
        ck_assert_uint_eq(restart(caches, count, order, &pool), used);
        end_all(caches, count, pool);
    }
}
END_TEST

/* Appends to both layers, of which the first forgets. */
static void append_and_forget(struct attn_cache *cache, size_t n, unsigned seed)
{
    const size_t at = attn_cache_length(cache, 0);
    n = n < LONGEST - at ? n : LONGEST - at;
    append(cache, 0, n, seed);
    attn_cache_forget(cache, 0, at);
    if (attn_cache_length(cache, 1) + n <= LONGEST)
        append(cache, 1, n, seed);
}

/* Sessions whose windows forget: forks of one go on, or stay where they were, or are cut. */
START_TEST(test_forks_of_sessions_that_forget_fit_again)
{
    struct rng r = {.state = 99 + (uint64_t)_i};
    teardown();
    setup_with(
        (enum attn_dtype)(_i % 4),
        ",\"sliding_window\":130,\"layer_types\":[\"sliding_attention\",\"full_attention\"]");
    for (unsigned round = 0; round < 12; round++) {
        struct attn_cache_pool *pool = new_pool((size_t)64 << 20);
        struct attn_cache *caches[MOST] = {new_cache(pool)};
        size_t order[MOST], count = 1;
        for (unsigned i = 0; i < 120; i++) {
            struct attn_cache *cache = caches[rng_below(&r, (unsigned)count)];
            if (rng_below(&r, 8) < 4 && count < MOST)
                caches[count++] = fork_of(cache, SIZE_MAX);
            else
                append_and_forget(cache, 1 + rng_below(&r, 90), rng_below(&r, 3));
        }
        for (size_t i = 0; i < count; i++)
            order[i] = count - 1 - i;
        const size_t used = attn_cache_pool_used(pool);
        ck_assert_uint_eq(restart(caches, count, order, &pool), used);
        end_all(caches, count, pool);
    }
}
END_TEST

Suite *suite_sharing(void)
{
    Suite *suite = suite_create("sharing");
    TCase *tests = suite_cases(suite, "sharing", setup, teardown, 0);
    tcase_add_loop_test(tests, test_forks_share_what_they_shared_in_whichever_order_they_are_read,
                        0, 5);
    tcase_add_test(tests, test_caches_that_share_blocks_go_on_each_for_itself);
    tcase_add_test(tests, test_caches_of_equal_tokens_that_share_nothing_take_what_they_took);
    tcase_add_loop_test(tests, test_fork_that_is_left_takes_what_it_would_alone_whoever_goes, 0, 4);
    tcase_add_loop_test(tests, test_wrong_record_shares_nothing_and_changes_no_bit, 0, 2);
    tcase_add_test(tests, test_block_that_a_longer_import_went_on_in_is_compared_to_its_end);
    tcase_add_test(tests, test_block_that_a_step_went_on_in_is_not_shared_by_imports);
    tcase_add_test(tests,
                   test_forks_of_a_session_that_is_lost_share_with_each_other_and_with_its_parent);
    tcase_add_loop_test(tests, test_any_family_of_forks_fits_again_where_it_did, 0, 8);
    tcase_add_loop_test(tests, test_forks_of_sessions_that_forget_fit_again, 0, 4);
    return suite;
}
