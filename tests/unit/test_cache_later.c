/* test_cache_later.c: caches that have lengths and blocks before their tokens are there: filling
 * them by hand and from a file, with blocks that caches share, windows, and layers that read
 * others. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "attn.h"
#include "attn_state.h"
#include "caches/kvcache.h"
#include "suites.h"

#define GROUPS 2
#define WIDTH 4
#define ROW (GROUPS * WIDTH)
#define BLOCK_BYTES ((size_t)64 * GROUPS * 2 * WIDTH * sizeof(float))
#define LENGTH 150 /* two blocks and a part of the third */
#define WINDOW 8
#define LAYERS 4 /* full, with a window, and two that read the first and the second */

static struct attn_model *model;
static struct attn_cache_pool *pool;
static struct attn_error error;

static void setup(void)
{
    static const char config[] =
        "{\"hidden_size\":16,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"num_hidden_layers\":4,\"sliding_window\":8,\"num_kv_shared_layers\":2,"
        "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
        "\"sliding_attention\"]}";
    ck_assert_int_eq(attn_model_open_random(&model, config, strlen(config), NULL, &error), ATTN_OK);
    ck_assert_int_eq(attn_model_load(model, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, 16 * BLOCK_BYTES), ATTN_OK);
}

static void teardown(void)
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

/* The key of a token; its value is the negative of it. */
static void make_row(float key[ROW], float value[ROW], size_t layer, size_t token)
{
    for (size_t i = 0; i < ROW; i++) {
        key[i] = (float)(100000 * layer + 10 * token + i + 1);
        value[i] = -key[i];
    }
}

static enum attn_status fill(struct attn_cache *cache, size_t layer, size_t token)
{
    float key[ROW], value[ROW];
    make_row(key, value, layer, token);
    return attn_cache_fill(cache, layer, token, key, value, &error);
}

static void fill_all(struct attn_cache *cache, size_t layer, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        ck_assert_int_eq(fill(cache, layer, i), ATTN_OK);
}

static enum attn_status lengthen(struct attn_cache *cache, size_t layer, size_t length)
{
    return attn_cache_lengthen(cache, layer, length, NULL, 0, &error);
}

static void write_all(struct attn_cache *cache, size_t layer, size_t count)
{
    float key[ROW], value[ROW];
    for (size_t i = 0; i < count; i++) {
        make_row(key, value, layer, i);
        ck_assert_int_eq(attn_cache_write(cache, layer, 1, key, value, &error), ATTN_OK);
    }
}

static void expect_tokens(const struct attn_cache *cache, size_t layer, size_t first, size_t end)
{
    float key[ROW], value[ROW], want_key[ROW], want_value[ROW];
    for (size_t i = first; i < end; i++) {
        make_row(want_key, want_value, layer, i);
        attn_cache_read_from(key, value, cache, layer, i, 1);
        ck_assert_mem_eq(key, want_key, sizeof key);
        ck_assert_mem_eq(value, want_value, sizeof value);
    }
}

/* ---- Lengthening and filling ----------------------------------------------------------------- */

START_TEST(test_lengthened_layer_has_its_blocks_and_is_filled_token_by_token)
{
    struct attn_cache *cache = new_cache();
    ck_assert_int_eq(lengthen(cache, 0, LENGTH), ATTN_OK);
    ck_assert_uint_eq(attn_cache_length(cache, 0), LENGTH);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 3 * BLOCK_BYTES);
    for (size_t i = 0; i < LENGTH; i++) {
        ck_assert_uint_eq(attn_cache_filled(cache, 0), i);
        ck_assert_int_eq(fill(cache, 0, i), ATTN_OK);
    }
    ck_assert_uint_eq(attn_cache_filled(cache, 0), LENGTH);
    expect_tokens(cache, 0, 0, LENGTH);
    attn_cache_free(cache);
}
END_TEST

START_TEST(test_fill_refuses_what_is_not_the_next_token_of_its_block)
{
    float key[ROW], value[ROW];
    struct attn_cache *cache = new_cache();
    ck_assert_int_eq(lengthen(cache, 0, LENGTH), ATTN_OK);
    ck_assert_int_eq(fill(cache, 0, 1), ATTN_INVALID);
    ck_assert_int_eq(fill(cache, 0, 65), ATTN_INVALID);
    ck_assert_int_eq(fill(cache, 0, 64), ATTN_OK); /* blocks are filled in any order */
    ck_assert_int_eq(fill(cache, 0, 0), ATTN_OK);
    fill_all(cache, 0, 128, LENGTH);
    ck_assert_int_eq(fill(cache, 0, LENGTH), ATTN_INVALID);
    ck_assert_int_eq(fill(cache, 0, 1000), ATTN_INVALID);
    ck_assert_int_eq(fill(cache, 0, SIZE_MAX), ATTN_INVALID);
    ck_assert_int_eq(fill(cache, LAYERS, 0), ATTN_NOT_FOUND);
    make_row(key, value, 0, 1);
    value[ROW - 1] = NAN;
    ck_assert_int_eq(attn_cache_fill(cache, 0, 1, key, value, &error), ATTN_OUT_OF_RANGE);
    ck_assert_uint_eq(attn_cache_filled(cache, 0), 1);
    make_row(key, value, 0, 7); /* a token that is there stays as it is */
    ck_assert_int_eq(attn_cache_fill(cache, 0, 0, key, value, &error), ATTN_OK);
    expect_tokens(cache, 0, 0, 1);
    expect_tokens(cache, 0, 128, LENGTH);
    attn_cache_free(cache);
}
END_TEST

START_TEST(test_lengthen_refuses_what_a_cache_cannot_have)
{
    struct attn_cache *cache = new_cache(), *large = new_cache();
    ck_assert_int_eq(lengthen(cache, 0, LENGTH), ATTN_OK);
    ck_assert_int_eq(lengthen(cache, 0, LENGTH - 1), ATTN_CACHE_FULL);
    ck_assert_int_eq(lengthen(cache, 0, 1001), ATTN_CACHE_FULL);
    ck_assert_int_eq(lengthen(cache, 0, SIZE_MAX), ATTN_CACHE_FULL);
    ck_assert_int_eq(lengthen(cache, LAYERS, 1), ATTN_NOT_FOUND);
    ck_assert_uint_eq(attn_cache_length(cache, 0), LENGTH);
    ck_assert_int_eq(lengthen(large, 0, 1000), ATTN_POOL_FULL);
    ck_assert_uint_eq(attn_cache_length(large, 0), 0);
    attn_cache_free(large);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 3 * BLOCK_BYTES);
    attn_cache_free(cache);
}
END_TEST

/* ---- Shared blocks --------------------------------------------------------------------------- */

START_TEST(test_lengthened_layers_share_blocks_that_are_filled_once)
{
    struct attn_cache *parent = new_cache(), *child = new_cache();
    ck_assert_int_eq(lengthen(parent, 0, LENGTH), ATTN_OK);
    ck_assert_int_eq(attn_cache_lengthen(child, 0, 128, parent, 2, &error), ATTN_OK);
    ck_assert_int_eq(lengthen(child, 0, LENGTH), ATTN_OK);
    ck_assert_uint_lt(attn_cache_pool_used(pool), 5 * BLOCK_BYTES); /* 3, and 1 of the child */
    fill_all(child, 0, 0, 70);
    ck_assert_uint_eq(attn_cache_filled(child, 0), 70);
    ck_assert_uint_eq(attn_cache_filled(parent, 0), 70);
    fill_all(parent, 0, 0, LENGTH);
    ck_assert_uint_eq(attn_cache_filled(parent, 0), LENGTH);
    ck_assert_uint_eq(attn_cache_filled(child, 0), 128);
    fill_all(child, 0, 128, LENGTH);
    expect_tokens(parent, 0, 0, LENGTH);
    attn_cache_free(parent);
    expect_tokens(child, 0, 0, LENGTH);
    attn_cache_free(child);
}
END_TEST

/* Shares that a layer cannot have: not ending at a block's end, or of a block `from` lacks. */
START_TEST(test_lengthen_shares_no_more_blocks_than_there_are)
{
    struct attn_cache *parent = new_cache(), *child = new_cache();
    ck_assert_int_eq(lengthen(parent, 0, 64), ATTN_OK);
    ck_assert_int_eq(attn_cache_lengthen(child, 0, 200, parent, 9, &error), ATTN_OK);
    ck_assert_uint_eq(attn_cache_length(child, 0), 200);
    fill_all(parent, 0, 0, 64);
    ck_assert_uint_eq(attn_cache_filled(child, 0), 64);
    attn_cache_free(child);
    child = new_cache();
    ck_assert_int_eq(lengthen(child, 0, 3), ATTN_OK);
    ck_assert_int_eq(attn_cache_lengthen(child, 0, 64, parent, 1, &error), ATTN_OK);
    ck_assert_uint_eq(attn_cache_filled(child, 0), 0);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 2 * BLOCK_BYTES);
    attn_cache_free(child);
    attn_cache_free(parent);
}
END_TEST

/* A fork within a block: what each adds goes into copies, which are filled apart. */
START_TEST(test_forks_that_go_on_have_their_last_blocks_apart)
{
    struct attn_cache *parent = new_cache(), *child;
    ck_assert_int_eq(lengthen(parent, 0, 70), ATTN_OK);
    ck_assert_int_eq(attn_cache_fork(&child, parent, 66, &error), ATTN_OK);
    ck_assert_int_eq(lengthen(child, 0, 80), ATTN_OK);
    ck_assert_int_eq(lengthen(parent, 0, 75), ATTN_OK);
    fill_all(parent, 0, 0, 75);
    ck_assert_uint_eq(attn_cache_filled(parent, 0), 75);
    ck_assert_uint_eq(attn_cache_filled(child, 0), 64);
    fill_all(child, 0, 64, 80);
    ck_assert_uint_eq(attn_cache_filled(child, 0), 80);
    expect_tokens(parent, 0, 0, 75);
    expect_tokens(child, 0, 0, 80);
    attn_cache_free(child);
    attn_cache_free(parent);
}
END_TEST

/* ---- Windows, and layers that read others ---------------------------------------------------- */

START_TEST(test_lengthened_layer_with_a_window_keeps_what_it_has_not_forgotten)
{
    struct attn_cache *cache = new_cache();
    ck_assert_int_eq(attn_cache_begin_at(cache, 1, 64, &error), ATTN_OK);
    ck_assert_int_eq(lengthen(cache, 1, 200), ATTN_OK);
    ck_assert_int_eq(lengthen(cache, 3, 200), ATTN_OK);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 3 * BLOCK_BYTES);
    ck_assert_uint_eq(attn_cache_filled(cache, 1), 64);
    ck_assert_int_eq(fill(cache, 1, 63), ATTN_INVALID);
    attn_cache_forget(cache, 1, 199);
    ck_assert_uint_eq(attn_cache_first(cache, 1), 192);
    ck_assert_uint_eq(attn_cache_pool_used(pool), BLOCK_BYTES);
    ck_assert_uint_eq(attn_cache_filled(cache, 1), 192);
    ck_assert_int_eq(fill(cache, 1, 191), ATTN_INVALID);
    fill_all(cache, 1, 192, 200);
    ck_assert_uint_eq(attn_cache_filled(cache, 1), 200);
    expect_tokens(cache, 1, 192, 200);
    attn_cache_free(cache);
}
END_TEST

START_TEST(test_layer_that_reads_another_has_no_tokens_to_be_filled)
{
    struct attn_cache *cache = new_cache();
    ck_assert_int_eq(lengthen(cache, 0, LENGTH), ATTN_OK);
    ck_assert_int_eq(lengthen(cache, 2, LENGTH), ATTN_OK);
    ck_assert_uint_eq(attn_cache_pool_used(pool), 3 * BLOCK_BYTES);
    ck_assert_uint_eq(attn_cache_filled(cache, 2), LENGTH);
    ck_assert_int_eq(fill(cache, 2, 5), ATTN_OK); /* nothing is written */
    ck_assert_uint_eq(attn_cache_filled(cache, 0), 0);
    fill_all(cache, 0, 0, LENGTH);
    expect_tokens(cache, 0, 0, LENGTH);
    attn_cache_free(cache);
}
END_TEST

/* ---- From a file ----------------------------------------------------------------------------- */

/* A cache of LENGTH tokens whose windows have forgotten the first two blocks, as a file. */
static void *make_file(size_t *size)
{
    struct attn_export *export;
    struct attn_cache *cache = new_cache();
    for (size_t layer = 0; layer < LAYERS; layer++) {
        if (layer < 2)
            write_all(cache, layer, LENGTH);
        else
            ck_assert_int_eq(lengthen(cache, layer, LENGTH), ATTN_OK);
    }
    attn_cache_forget(cache, 1, LENGTH - 1);
    ck_assert_int_eq(attn_export_open(&export, cache, NULL, 0, &error), ATTN_OK);
    *size = attn_export_bytes(export);
    void *bytes = malloc(*size);
    while (attn_export_run(export, bytes, 1 << 20))
        continue;
    attn_export_close(export);
    attn_cache_free(cache);
    return bytes;
}

/* A cache of `length` tokens without numbers, that has forgotten what that of make_file has. */
static struct attn_cache *make_empty(size_t length)
{
    struct attn_cache *cache = new_cache();
    ck_assert_int_eq(attn_cache_begin_at(cache, 1, 128, &error), ATTN_OK);
    for (size_t layer = 0; layer < LAYERS; layer++)
        ck_assert_int_eq(lengthen(cache, layer, length), ATTN_OK);
    return cache;
}

static enum attn_status fill_from(struct attn_cache *cache, const size_t ends[LAYERS])
{
    size_t size;
    struct attn_import *import;
    void *bytes = make_file(&size);
    bool more = true;
    ck_assert_int_eq(attn_import_open(&import, bytes, size, &error), ATTN_OK);
    enum attn_status status = attn_import_begin_fill(import, cache, ends, &error);
    while (status == ATTN_OK && more)
        status = attn_import_run(&more, import, 1000, &error);
    attn_import_close(import);
    free(bytes);
    return status;
}

START_TEST(test_import_fills_what_is_missing_before_the_ends)
{
    static const size_t all[LAYERS] = {LENGTH, LENGTH, LENGTH, LENGTH};
    static const size_t some[LAYERS] = {100, 140, 100, 140};
    struct attn_cache *cache = make_empty(LENGTH + 5);
    ck_assert_int_eq(fill_from(cache, some), ATTN_OK);
    ck_assert_uint_eq(attn_cache_filled(cache, 0), 100);
    ck_assert_uint_eq(attn_cache_filled(cache, 1), 140);
    ck_assert_int_eq(fill_from(cache, all), ATTN_OK);
    ck_assert_uint_eq(attn_cache_filled(cache, 0), LENGTH);
    fill_all(cache, 0, LENGTH, LENGTH + 5);
    fill_all(cache, 1, LENGTH, LENGTH + 5);
    for (size_t layer = 0; layer < LAYERS; layer++)
        ck_assert_uint_eq(attn_cache_filled(cache, layer), LENGTH + 5);
    expect_tokens(cache, 0, 0, LENGTH + 5);
    expect_tokens(cache, 1, 128, LENGTH + 5);
    attn_cache_free(cache);
}
END_TEST

START_TEST(test_import_fills_shared_blocks_for_all_their_caches)
{
    static const size_t all[LAYERS] = {LENGTH, LENGTH, LENGTH, LENGTH};
    struct attn_cache *parent = make_empty(LENGTH), *child;
    ck_assert_int_eq(attn_cache_fork(&child, parent, LENGTH, &error), ATTN_OK);
    ck_assert_int_eq(fill_from(child, all), ATTN_OK);
    for (size_t layer = 0; layer < LAYERS; layer++)
        ck_assert_uint_eq(attn_cache_filled(parent, layer), LENGTH);
    attn_cache_free(child);
    expect_tokens(parent, 0, 0, LENGTH);
    expect_tokens(parent, 1, 128, LENGTH);
    attn_cache_free(parent);
}
END_TEST

/* A file that ends before the tokens, and one that begins after them. */
START_TEST(test_import_refuses_to_fill_what_the_file_does_not_have)
{
    static const size_t more[LAYERS] = {LENGTH + 1, LENGTH, LENGTH, LENGTH};
    static const size_t all[LAYERS] = {64, 64, 64, 64};
    struct attn_cache *cache = make_empty(LENGTH + 5), *whole = new_cache();
    ck_assert_int_eq(fill_from(cache, more), ATTN_INVALID);
    ck_assert_uint_eq(attn_cache_filled(cache, 0), 0);
    for (size_t layer = 0; layer < LAYERS; layer++)
        ck_assert_int_eq(lengthen(whole, layer, 64), ATTN_OK);
    ck_assert_int_eq(fill_from(whole, all), ATTN_INVALID);
    ck_assert_uint_eq(attn_cache_filled(whole, 1), 0);
    attn_cache_free(whole);
    attn_cache_free(cache);
}
END_TEST

Suite *suite_cache_later(void)
{
    Suite *suite = suite_create("cache_later");
    TCase *tests = suite_cases(suite, "cache_later", setup, teardown, 0);
    tcase_add_test(tests, test_lengthened_layer_has_its_blocks_and_is_filled_token_by_token);
    tcase_add_test(tests, test_fill_refuses_what_is_not_the_next_token_of_its_block);
    tcase_add_test(tests, test_lengthen_refuses_what_a_cache_cannot_have);
    tcase_add_test(tests, test_lengthened_layers_share_blocks_that_are_filled_once);
    tcase_add_test(tests, test_lengthen_shares_no_more_blocks_than_there_are);
    tcase_add_test(tests, test_forks_that_go_on_have_their_last_blocks_apart);
    tcase_add_test(tests, test_lengthened_layer_with_a_window_keeps_what_it_has_not_forgotten);
    tcase_add_test(tests, test_layer_that_reads_another_has_no_tokens_to_be_filled);
    tcase_add_test(tests, test_import_fills_what_is_missing_before_the_ends);
    tcase_add_test(tests, test_import_fills_shared_blocks_for_all_their_caches);
    tcase_add_test(tests, test_import_refuses_to_fill_what_the_file_does_not_have);
    return suite;
}
