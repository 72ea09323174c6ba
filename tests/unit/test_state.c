/* test_state.c: the algebra of caches (append, fork, truncate, retry, export, import, free) against
 * a model that knows only which tokens a cache holds; and files that must be refused.
 *
 * The model of a cache is the list of its tokens' seeds.  The expected content of a cache, and the
 * expected output of a step over it, come from appending these tokens to a fresh cache one after
 * the other. */
#include <check.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attn_state.h"
#include "files/checksum.h"
#include "opened.h"
#include "rng.h"
#include "suites.h"

#define WIDTH 16 /* E */
#define GROUPS 2 /* G */
#define HEAD 4   /* D and Dv */
#define LAYERS 2
#define CACHES 5    /* alive at a time */
#define LONGEST 140 /* tokens: more than two blocks */

#ifndef INSTRUMENTED
#define INSTRUMENTED 0
#endif
#define ALLOCATOR 1024 /* bytes that the allocator takes for itself, for a dozen pieces */

static struct attn_engine *engine;
static struct attn_model *model;
static struct attn_cache_pool *pool;
static struct attn_error error;

static struct attn_model *make_model(unsigned seed)
{
    char config[200];
    struct attn_model *made;
    snprintf(config, sizeof config,
             "{\"hidden_size\":16,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
             "\"num_hidden_layers\":2,\"rope_theta\":10000,\"seed\":%u}",
             seed);
    made = opened_random(config, NULL);
    return made;
}

static void setup(void)
{
    ck_assert_int_eq(attn_engine_open(&engine, NULL, &error), ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)64 << 20), ATTN_OK);
    model = make_model(7);
}

static void teardown(void)
{
    free_unused_pool(pool);
    attn_model_close(model);
    attn_engine_close(engine);
}

static struct attn_cache *new_cache(void)
{
    struct attn_cache *cache;
    ck_assert_int_eq(attn_cache_new(&cache, pool, model, LONGEST, &error), ATTN_OK);
    return cache;
}

/* Computes the token of that seed in one layer: appends it at `position`, or computes it again
 * where it is cached already.  out [E]. */
static void step(float *out, struct attn_cache *cache, size_t layer, unsigned seed, size_t position)
{
    struct rng r = rng_seeded(seed);
    float row[WIDTH];
    for (size_t i = 0; i < WIDTH; i++)
        row[i] = rng_float(&r, 1);
    struct attn_step one = {.cache = cache,
                            .position = position,
                            .rows = 1,
                            .hidden_states = row,
                            .outputs = {.output = out},
                            .commit = true};
    struct attn_step *steps[] = {&one};
    ck_assert_msg(attn_decode(engine, model, layer, steps, 1) == ATTN_OK, "%s", one.error.message);
}

/* ---- The model ------------------------------------------------------------------------------- */

/* The expected content of a cache; layer 1 is at most as long as layer 0. */
struct known {
    struct attn_cache *cache; /* NULL: free */
    size_t lengths[LAYERS];
    unsigned seeds[LAYERS][LONGEST];
};

/* The output of the last token of one layer and the expected content of that layer, by replay. */
static void replay(float *out, float *key, float *value, const struct known *k, size_t layer)
{
    struct attn_cache *fresh = new_cache();
    for (size_t i = 0; i < k->lengths[layer]; i++)
        step(out, fresh, layer, k->seeds[layer][i], i);
    attn_cache_read(key, value, fresh, layer, k->lengths[layer]);
    attn_cache_free(fresh);
}

/* Fails unless the cache is what its model says: lengths, numbers, and the last step computed
 * again. */
static void check_known(const struct known *k, const char *after)
{
    enum { SIZE = GROUPS * LONGEST * HEAD };
    static float want[2][SIZE], got[2][SIZE];
    float want_out[WIDTH], got_out[WIDTH];
    for (size_t layer = 0; layer < LAYERS; layer++) {
        size_t length = k->lengths[layer], bytes = GROUPS * length * HEAD * sizeof(float);
        ck_assert_uint_eq(attn_cache_length(k->cache, layer), length);
        if (length == 0)
            continue;
        replay(want_out, want[0], want[1], k, layer);
        attn_cache_read(got[0], got[1], k->cache, layer, length);
        ck_assert_msg(memcmp(got[0], want[0], bytes) == 0, "keys differ after %s", after);
        ck_assert_msg(memcmp(got[1], want[1], bytes) == 0, "values differ after %s", after);
        step(got_out, k->cache, layer, k->seeds[layer][length - 1], length - 1);
        ck_assert_msg(memcmp(got_out, want_out, sizeof want_out) == 0, "a retry differs after %s",
                      after);
        ck_assert_uint_eq(attn_cache_length(k->cache, layer), length);
    }
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* The same export, read in pieces to their places. */
static void check_pieces(const char *file, size_t size, const struct attn_cache *cache, size_t room,
                         const struct attn_note *notes, size_t num_notes)
{
    struct attn_export *state;
    char *copy = calloc(1, size), *piece = malloc(room);
    size_t count, place, written = 0;
    ck_assert_int_eq(attn_export_open(&state, cache, notes, num_notes, &error), ATTN_OK);
    while ((count = attn_export_piece(&place, piece, state, room)) > 0) {
        ck_assert_uint_le(count, room);
        ck_assert_uint_le(place, size - count);
        memcpy(copy + place, piece, count);
        written += count;
    }
    ck_assert_uint_eq(written, size);
    ck_assert_mem_eq(copy, file, size);
    attn_export_close(state);
    free(piece);
    free(copy);
}

static char *save_notes(size_t *size, const struct attn_cache *cache, size_t budget,
                        const struct attn_note *notes, size_t num_notes)
{
    struct attn_export *state;
    ck_assert_msg(attn_export_open(&state, cache, notes, num_notes, &error) == ATTN_OK, "%s",
                  error.message);
    *size = attn_export_bytes(state);
    char *file = malloc(*size);
    size_t pieces = 1;
    while (attn_export_run(state, file, budget))
        pieces++;
    ck_assert_uint_le(pieces, 2 * *size / budget + 4);
    attn_export_close(state);
    check_pieces(file, *size, cache, ATTN_EXPORT_ROOM + budget, notes, num_notes);
    return file;
}

static char *save(size_t *size, const struct attn_cache *cache, size_t budget)
{
    static const struct attn_note notes[] = {{"model", "tiny"}, {"a", "b c"}};
    return save_notes(size, cache, budget, notes, 2);
}

/* The cache of these bytes; NULL, with `error` set, where they are refused. */
static struct attn_cache *load(const char *bytes, size_t size, size_t budget)
{
    struct attn_import *state = NULL;
    struct attn_cache *cache = new_cache();
    bool more = true;
    error = (struct attn_error){0};
    enum attn_status status = attn_import_open(&state, bytes, size, &error);
    if (status == ATTN_OK)
        status = attn_import_begin(state, cache, &error);
    while (status == ATTN_OK && more)
        status = attn_import_run(&more, state, budget, &error);
    attn_import_close(state);
    ck_assert_int_eq(error.status, status);
    if (status == ATTN_OK)
        return cache;
    attn_cache_free(cache);
    return NULL;
}

/* ---- Random sequences ------------------------------------------------------------------------ */

static void do_append(struct known *k, struct rng *r)
{
    float out[WIDTH];
    for (unsigned n = 1 + rng_below(r, 40); n > 0; n--)
        for (size_t layer = 0; layer < LAYERS; layer++) {
            size_t *length = &k->lengths[layer];
            if (*length == LONGEST || (layer > 0 && (rng_below(r, 2) || *length == k->lengths[0])))
                continue;
            unsigned seed = 1 + rng_below(r, 1u << 30);
            k->seeds[layer][*length] = seed;
            step(out, k->cache, layer, seed, (*length)++);
        }
}

static void shorten(struct known *k, size_t length)
{
    for (size_t layer = 0; layer < LAYERS; layer++)
        k->lengths[layer] = k->lengths[layer] < length ? k->lengths[layer] : length;
}

static void do_truncate(struct known *k, struct rng *r)
{
    size_t length = rng_below(r, (unsigned)k->lengths[0] + 2);
    attn_cache_truncate(k->cache, length);
    shorten(k, length);
}

static void do_fork(struct known *to, const struct known *from, struct rng *r)
{
    size_t length = rng_below(r, 3) ? SIZE_MAX : rng_below(r, (unsigned)from->lengths[0] + 2);
    *to = *from;
    ck_assert_int_eq(attn_cache_fork(&to->cache, from->cache, length, &error), ATTN_OK);
    shorten(to, length);
}

static void do_move(struct known *to, const struct known *from, struct rng *r)
{
    size_t size, budget = 64 + rng_below(r, 4000);
    char *file = save(&size, from->cache, budget);
    *to = *from;
    to->cache = load(file, size, budget);
    ck_assert_msg(to->cache != NULL, "%s", error.message);
    free(file);
}

CASE(state, setup, teardown, 120)

TEST_EACH(state_any_sequence_of_operations_leaves_what_a_replay_of_its_tokens_gives, 6)
{
    static struct known known[CACHES];
    struct rng r = rng_seeded((uint64_t)_i + 1);
    memset(known, 0, sizeof known);
    for (int round = 0; round < 120; round++) {
        struct known *a = &known[rng_below(&r, CACHES)], *b = &known[rng_below(&r, CACHES)];
        const char *names[] = {"append", "truncate", "fork", "export and import", "free"};
        unsigned what = rng_below(&r, 10);
        what = what < 4 ? 0 : what < 6 ? 1 : what < 8 ? 2 : what < 9 ? 3 : 4;
        if (a->cache == NULL) {
            *a = (struct known){.cache = new_cache()};
            what = 0;
        }
        if ((what == 2 || what == 3) && b->cache != NULL)
            what = 1;
        if (what == 0)
            do_append(a, &r);
        else if (what == 1)
            do_truncate(a, &r);
        else if (what == 2)
            do_fork(b, a, &r);
        else if (what == 3)
            do_move(b, a, &r);
        else
            attn_cache_free(a->cache), *a = (struct known){0};
        for (size_t i = 0; i < CACHES; i++)
            if (known[i].cache != NULL && (&known[i] == a || &known[i] == b || round % 10 == 9))
                check_known(&known[i], names[what]);
    }
    for (size_t i = 0; i < CACHES; i++)
        attn_cache_free(known[i].cache);
}

/* ---- Files that must be refused -------------------------------------------------------------- */

static struct known sample(size_t tokens)
{
    struct rng r = rng_seeded(5);
    float out[WIDTH];
    struct known k = {.cache = new_cache()};
    for (size_t layer = 0; layer < LAYERS; layer++)
        for (k.lengths[layer] = 0; k.lengths[layer] < tokens / (layer + 1); k.lengths[layer]++) {
            unsigned seed = 1 + rng_below(&r, 1000);
            k.seeds[layer][k.lengths[layer]] = seed;
            step(out, k.cache, layer, seed, k.lengths[layer]);
        }
    return k;
}

static void refuse(const char *file, size_t size, const char *what, size_t where)
{
    size_t used = attn_cache_pool_used(pool);
    struct attn_cache *cache = load(file, size, 1000);
    ck_assert_msg(cache == NULL, "%s %zu was believed", what, where);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    ck_assert_msg(error.message[0] != '\0', "%s %zu was refused without a word", what, where);
}

/* A file with some of its text replaced by other text of the same length; its checksum is repaired
 * where that is asked for. */
static char *altered(const char *file, size_t size, const char *from, const char *to)
{
    char *copy = malloc(size);
    memcpy(copy, file, size);
    char *at = memmem(copy, size, from, strlen(from));
    ck_assert_msg(at != NULL, "no %s in the file", from);
    ck_assert_uint_eq(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
    return copy;
}

static void refuse_altered(const char *from, const char *to, enum attn_status status)
{
    struct known k = sample(6);
    size_t size;
    char *file = save(&size, k.cache, 4096), *copy = altered(file, size, from, to);
    refuse(copy, size, to, 0);
    ck_assert_msg(error.status == status, "%s: %s", to, error.message);
    free(copy);
    free(file);
    attn_cache_free(k.cache);
}

TEST(state_what_is_wrong_is_named)
{
    refuse_altered("attn-cache-1", "attn-cache-2", ATTN_MALFORMED);
    refuse_altered("\"fingerprint\":\"", "\"fingerprinx\":\"", ATTN_INVALID);
    refuse_altered("layers.1.value", "layers.2.value", ATTN_MALFORMED);
    refuse_altered("\"F32\",\"shape\":[2,6,4]", "\"I32\",\"shape\":[2,6,4]", ATTN_SHAPE_MISMATCH);
    refuse_altered("[2,6,4]", "[4,6,2]", ATTN_SHAPE_MISMATCH);
    refuse_altered("\"lengths\":\"6 3\"", "\"lengths\":\"5 3\"", ATTN_MALFORMED);
    refuse_altered("\"a\":\"b c\"", "\"a\":\"b d\"", ATTN_MALFORMED);
    ck_assert_str_eq(error.param, "checksum");
}

TEST(state_of_other_weights_or_too_long_is_refused)
{
    struct known k = sample(100);
    size_t size, used = attn_cache_pool_used(pool);
    char *file = save(&size, k.cache, 1 << 20);
    struct attn_model *mine = model, *other = make_model(8);
    model = other;
    refuse(file, size, "the state of another model", 0);
    ck_assert_str_eq(error.param, "fingerprint");
    model = mine;
    struct attn_cache *small;
    struct attn_import *state;
    ck_assert_int_eq(attn_cache_new(&small, pool, model, 99, &error), ATTN_OK);
    ck_assert_int_eq(attn_import_open(&state, file, size, &error), ATTN_OK);
    ck_assert_int_eq(attn_import_begin(state, small, &error), ATTN_CACHE_FULL);
    attn_import_close(state);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    attn_cache_free(small);
    free(file);
    attn_cache_free(k.cache);
    attn_model_close(other);
}

/* Sets the first number of the first tensor, which begins where the header ends. */
static void put_first(char *file, float number)
{
    uint64_t header;
    memcpy(&header, file, sizeof header);
    memcpy(file + sizeof header + header, &number, sizeof number);
}

/* Repairs the checksum as attn_state.h describes it.  The notes of `save` are in the order of their
 * names. */
static void repair(char *file, size_t size, const struct attn_import *state)
{
    static const char *const names[] = {"a", "fingerprint", "format", "lengths", "model"};
    uint64_t header;
    struct attn_checksum sum;
    memcpy(&header, file, sizeof header);
    attn_checksum_init(&sum);
    attn_checksum_add(&sum, file + 8 + header, size - 8 - header);
    for (size_t i = 0; i < 5; i++) {
        char line[200];
        snprintf(line, sizeof line, "%s=%s\n", names[i], attn_import_note(state, names[i]));
        attn_checksum_add(&sum, line, strlen(line));
    }
    char *at = memmem(file, size, "\"checksum\":\"", 12);
    attn_checksum_hex(at + 12, &sum);
}

TEST(state_numbers_that_no_cache_can_hold_are_refused_though_the_checksum_is_right)
{
    static const float numbers[] = {NAN, INFINITY, -INFINITY, 2e15f, -2e15f, 1e15f};
    struct known k = sample(6);
    size_t size;
    char *file = save(&size, k.cache, 4096);
    struct attn_import *state;
    for (size_t i = 0; i < COUNT(numbers); i++) {
        ck_assert_int_eq(attn_import_open(&state, file, size, &error), ATTN_OK);
        put_first(file, numbers[i]);
        repair(file, size, state);
        attn_import_close(state);
        struct attn_cache *cache = load(file, size, 4096);
        ck_assert_int_eq(error.status, i < 3   ? ATTN_NON_FINITE
                                       : i < 5 ? ATTN_OUT_OF_RANGE
                                               : ATTN_OK);
        attn_cache_free(cache);
    }
    free(file);
    attn_cache_free(k.cache);
}

TEST(state_notes_that_would_break_the_header_are_refused)
{
    static const struct attn_note wrong[] = {{"a\"b", "c"},    {"a", "\\"},       {"a", "\n"},
                                             {"a=b", "c"},     {"checksum", "c"}, {"format", "c"},
                                             {"a", "\xc3\xa4"}};
    struct attn_cache *cache = new_cache();
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct attn_export *state = NULL;
        ck_assert_int_eq(attn_export_open(&state, cache, &wrong[i], 1, &error), ATTN_INVALID);
        ck_assert_ptr_null(state);
    }
    attn_cache_free(cache);
}

/* The status of opening an export with so many notes, and two more pairs where `extra` is set. */
static enum attn_status open_with(const struct attn_note *notes, size_t count, bool extra)
{
    static const char opening[] = "{\"__metadata__\":{",
                      pair[] = "\"an extra\":\"12\",\"b\":\"1\",";
    struct attn_import *state = NULL;
    struct attn_cache *cache = new_cache();
    size_t size, at = sizeof(uint64_t) + strlen(opening), added = extra ? strlen(pair) : 0;
    uint64_t header;
    char *file = save_notes(&size, cache, 4096, notes, count), *copy = malloc(size + added);
    memcpy(copy, file, at);
    memcpy(copy + at, pair, added);
    memcpy(copy + at + added, file + at, size - at);
    memcpy(&header, file, sizeof header);
    header += added;
    memcpy(copy, &header, sizeof header);
    enum attn_status status = attn_import_open(&state, copy, size + added, &error);
    attn_import_close(state);
    attn_cache_free(cache);
    free(copy);
    free(file);
    return status;
}

TEST(state_has_at_most_as_many_notes_as_documented)
{
    static char names[ATTN_MAX_NOTES + 1][8];
    static struct attn_note notes[ATTN_MAX_NOTES + 1];
    struct attn_cache *cache = new_cache();
    struct attn_export *state = NULL;
    for (size_t i = 0; i <= ATTN_MAX_NOTES; i++) {
        snprintf(names[i], sizeof names[i], "n%zu", i);
        notes[i] = (struct attn_note){names[i], "v"};
    }
    ck_assert_int_eq(attn_export_open(&state, cache, notes, ATTN_MAX_NOTES + 1, &error),
                     ATTN_OUT_OF_RANGE);
    attn_cache_free(cache);
    ck_assert_int_eq(open_with(notes, ATTN_MAX_NOTES, false), ATTN_OK);
    ck_assert_int_eq(open_with(notes, ATTN_MAX_NOTES - 1, true), ATTN_OK);
    ck_assert_int_eq(open_with(notes, ATTN_MAX_NOTES, true), ATTN_MALFORMED);
}

static size_t heap_bytes(void) { return INSTRUMENTED ? 0 : mallinfo2().uordblks; }

TEST(state_files_take_no_more_memory_than_is_said_before)
{
    static const struct attn_note notes[] = {{"model", "tiny"}, {"a", "b c"}};
    struct attn_cache *cache = new_cache(), *frozen, *empty;
    struct attn_export *export;
    struct attn_import *import;
    float rows[GROUPS * LONGEST * HEAD] = {0};
    size_t size, before;
    ck_assert_int_eq(attn_cache_write(cache, 0, LONGEST, rows, rows, &error), ATTN_OK);
    char *file = save(&size, cache, 100000);
    before = heap_bytes();
    ck_assert_int_eq(attn_cache_freeze(&frozen, cache, &error), ATTN_OK);
    ck_assert_int_eq(attn_export_open(&export, frozen, notes, 2, &error), ATTN_OK);
    ck_assert_uint_le(heap_bytes() - before, attn_export_memory(cache, notes, 2) + ALLOCATOR);
    attn_export_close(export);
    attn_cache_free(frozen);
    ck_assert_int_eq(attn_import_open(&import, file, size, &error), ATTN_OK);
    before = heap_bytes();
    empty = new_cache();
    ck_assert_int_eq(attn_import_begin(import, empty, &error), ATTN_OK);
    ck_assert_uint_le(heap_bytes() - before, attn_import_memory(model) + ALLOCATOR);
    attn_import_close(import);
    attn_cache_free(empty);
    attn_cache_free(cache);
    free(file);
}

TEST(state_forks_of_a_long_cache_are_paid_for_by_the_pool)
{
    struct attn_cache *cache = new_cache(), *fork;
    float rows[GROUPS * LONGEST * HEAD] = {0};
    ck_assert_int_eq(attn_cache_write(cache, 0, LONGEST, rows, rows, &error), ATTN_OK);
    size_t used = attn_cache_pool_used(pool);
    ck_assert_int_eq(attn_cache_fork(&fork, cache, SIZE_MAX, &error), ATTN_OK);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used + 3 * 2 * sizeof(void *));
    attn_cache_free(fork);
    ck_assert_uint_eq(attn_cache_pool_used(pool), used);
    ck_assert_int_eq(attn_cache_write(cache, 0, 1, rows, rows, &error), ATTN_CACHE_FULL);
    ck_assert_int_eq(attn_cache_write(cache, 9, 1, rows, rows, &error), ATTN_NOT_FOUND);
    attn_cache_free(cache);
}

SUITE(state)
