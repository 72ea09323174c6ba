/* mirror.c: one engine, a model for each kind, and a cache for each session. */
#include "mirror.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define LONGEST 1024

static struct attn_engine *engine;
static struct attn_cache_pool *pool;
static struct attn_model *models[MIRROR_KINDS];

/* The heads of `tiny`: their query is as wide as its rows. */
enum { HEADS = 4, KV_HEADS = 2, WIDTH = TINY / HEADS };

static const struct attn_model *model_of(const struct mirror *mirror)
{
    return models[mirror->kind];
}

void mirror_open(const char *config)
{
    const char *const configs[MIRROR_MODELS] = {[MIRROR_TINY] = config,
                                                [MIRROR_LATENT] = MIRROR_LATENT_MODEL,
                                                [MIRROR_READING] = MIRROR_READING_MODEL};
    struct attn_error error;
    ck_assert_int_eq(attn_engine_open(&engine, &(struct attn_engine_options){.threads = 1}, &error),
                     ATTN_OK);
    ck_assert_int_eq(attn_cache_pool_new(&pool, (size_t)256 << 20), ATTN_OK);
    for (size_t i = 0; i < MIRROR_MODELS; i++) {
        ck_assert_int_eq(
            attn_model_open_random(&models[i], configs[i], strlen(configs[i]), NULL, &error),
            ATTN_OK);
        ck_assert_int_eq(attn_model_load(models[i], &error), ATTN_OK);
    }
    const struct attn_weightless_options shape = {
        .num_heads = HEADS, .num_kv_heads = KV_HEADS, .head_dim = WIDTH};
    ck_assert_int_eq(attn_model_open_weightless(&models[MIRROR_WEIGHTLESS], &shape, &error),
                     ATTN_OK);
}

void mirror_close(void)
{
    for (size_t i = 0; i < MIRROR_KINDS; i++)
        attn_model_close(models[i]);
    attn_cache_pool_free(pool);
    attn_engine_close(engine);
}

const char *mirror_model(const struct mirror *mirror)
{
    static const char *const names[MIRROR_KINDS] = {
        [MIRROR_TINY] = "tiny", [MIRROR_LATENT] = "latent", [MIRROR_READING] = "reading"};
    return names[mirror->kind];
}

size_t mirror_layers(const struct mirror *mirror)
{
    return mirror->kind == MIRROR_WEIGHTLESS ? 1 : MIRROR_LAYERS;
}

bool mirror_takes(const struct mirror *mirror, size_t layer)
{
    if (mirror->kind == MIRROR_READING && layer > 0)
        return mirror->live && mirror_length(mirror, layer) < mirror_length(mirror, 0);
    return layer < mirror_layers(mirror);
}

void mirror_text_open(struct text *body, const struct mirror *mirror, size_t layer)
{
    const char *model = mirror_model(mirror);
    text_add(body, "{\"layer\":%zu,", layer);
    if (model != NULL)
        text_add(body, "\"model\":\"%s\",", model);
}

void mirror_note(struct mirror *mirror, const json_t *answer)
{
    mirror->epoch = json_integer_value(json_object_get(answer, "epoch"));
    mirror->revision = json_integer_value(json_object_get(answer, "revision"));
}

bool mirror_is_noted(const struct mirror *mirror, const json_t *answer)
{
    struct mirror other = {0};
    mirror_note(&other, answer);
    return other.epoch > 0 && other.revision > 0 && other.epoch == mirror->epoch &&
           other.revision == mirror->revision;
}

void mirror_write_noted(char out[80], const struct mirror *mirror)
{
    snprintf(out, 80, mirror->epoch > 0 ? ",\"epoch\":%lld,\"revision\":%lld" : "",
             (long long)mirror->epoch, (long long)mirror->revision);
}

void mirror_start(struct mirror *mirror)
{
    struct attn_error error;
    ck_assert_int_eq(attn_cache_new(&mirror->cache, pool, model_of(mirror), LONGEST, &error),
                     ATTN_OK);
    mirror->live = true;
}

void mirror_end(struct mirror *mirror)
{
    attn_cache_free(mirror->cache);
    mirror->cache = NULL;
    mirror->live = false;
    mirror->epoch = mirror->revision = 0;
}

void mirror_fork(struct mirror *mirror, const struct mirror *from, size_t length)
{
    struct attn_error error;
    ck_assert_int_eq(attn_cache_fork(&mirror->cache, from->cache, length, &error), ATTN_OK);
    mirror->kind = from->kind;
    mirror->live = true;
}

size_t mirror_length(const struct mirror *mirror, size_t layer)
{
    return attn_cache_length(mirror->cache, layer);
}

size_t mirror_longest(const struct mirror *mirror)
{
    size_t a = mirror_length(mirror, 0), b = mirror_length(mirror, 1);
    return a > b ? a : b;
}

void mirror_step(float out[TINY], struct mirror *mirror, size_t layer, unsigned seed, bool commit)
{
    float row[TINY];
    make_numbers(row, TINY, seed);
    struct attn_step step = {.cache = mirror->cache,
                             .position = mirror_length(mirror, layer),
                             .rows = 1,
                             .hidden_states = row,
                             .query = row,
                             .key = row,
                             .value = row + KV_HEADS * WIDTH,
                             .outputs = {.output = out},
                             .commit = commit};
    struct attn_step *steps[] = {&step};
    ck_assert_int_eq(attn_decode(engine, model_of(mirror), layer, steps, 1), ATTN_OK);
    ck_assert_msg(step.error.status == ATTN_OK, "%s", step.error.message);
}

void mirror_text_step(struct text *body, const struct mirror *mirror, unsigned seed,
                      const char *extra)
{
    float row[TINY];
    if (mirror->kind != MIRROR_WEIGHTLESS) {
        text_step(body, mirror->id, seed, extra);
        return;
    }
    make_numbers(row, TINY, seed);
    text_add(body, "\"session_id\":\"%s\",\"query\":", mirror->id);
    text_floats(body, row, 9, SHAPE(HEADS, WIDTH));
    text_add(body, ",\"key\":");
    text_floats(body, row, 9, SHAPE(KV_HEADS, WIDTH));
    text_add(body, ",\"value\":");
    text_floats(body, row + KV_HEADS * WIDTH, 9, SHAPE(KV_HEADS, WIDTH));
    text_add(body, "%s", extra);
}

/* Rows are one list of numbers, or one for each head. */
bool mirror_output_equals(const json_t *answer, const float out[TINY])
{
    const json_t *output = json_object_get(answer, "output");
    size_t count = json_array_size(output);
    bool same = count == TINY || count == HEADS;
    for (size_t i = 0; i < TINY && same; i++) {
        const json_t *number = count == TINY
                                   ? json_array_get(output, i)
                                   : json_array_get(json_array_get(output, i / WIDTH), i % WIDTH);
        float got = (float)json_number_value(number);
        same = memcmp(&got, &out[i], sizeof got) == 0;
    }
    return same;
}

void mirror_fill(struct mirror *mirror, size_t tokens)
{
    enum {
        PIECE = 64,
        NUMBERS = PIECE * TINY / 2
    }; /* two of the four heads keep keys and values */
    float key[NUMBERS], value[NUMBERS];
    struct attn_error error;
    ck_assert_int_eq(attn_cache_new(&mirror->cache, pool, model_of(mirror), tokens, &error),
                     ATTN_OK);
    mirror->live = true;
    for (size_t layer = 0; layer < MIRROR_LAYERS; layer++)
        for (size_t at = 0; at < tokens; at += PIECE) {
            size_t count = tokens - at < PIECE ? tokens - at : PIECE;
            make_numbers(key, NUMBERS, (unsigned)(2 * at + layer));
            make_numbers(value, NUMBERS, (unsigned)(2 * at + layer + 1));
            ck_assert_int_eq(attn_cache_write(mirror->cache, layer, count, key, value, &error),
                             ATTN_OK);
        }
}

char *mirror_state(size_t *size, const struct mirror *mirror)
{
    static const struct attn_note model_note = {"model", "tiny"};
    struct attn_export *state;
    struct attn_error error;
    ck_assert_int_eq(attn_export_open(&state, mirror->cache, &model_note, 1, &error), ATTN_OK);
    *size = attn_export_bytes(state);
    char *file = malloc(*size);
    ck_assert_ptr_nonnull(file);
    while (attn_export_run(state, file, *size))
        continue;
    attn_export_close(state);
    return file;
}

bool mirror_holds(const struct mirror *mirror, const char *data, size_t bytes)
{
    uint64_t header; /* length of the header, stored before it */
    size_t size;
    char *file = mirror_state(&size, mirror);
    memcpy(&header, file, sizeof header);
    bool same = size == sizeof header + header + bytes &&
                memcmp(file + sizeof header + header, data, bytes) == 0;
    free(file);
    return same;
}
