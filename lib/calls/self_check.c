/* self_check.c: the same steps alone and together, on one thread and on all, compared bit by bit.
 *
 * Steps are not committed, so each can be computed again over the same cache.  The engine of one
 * thread gets the kernels of the engine that is checked, not those it would choose itself.
 * kernelcheck and the unit suites say whether results are right; this check is about the CPU,
 * compiler and kernels that came together here. */
#include "attn_self_check.h"

#include <string.h>

#include "attn_state.h"
#include "basics/random.h"
#include "basics/status.h"
#include "engine/engine.h"
#include "layers/layer.h"
#include "machine/build_id.h"
#include "machine/cpu.h"
#include "models/model.h"

#define STEPS 3
#define LONG_STEP 1                   /* the step of one row, over the longest cache */
#define WRITE_TOKENS 64               /* tokens written to a cache at a time */
#define CACHE_BYTES ((size_t)8 << 20) /* of the longest cache, about */
#define LEAST_LENGTH 70               /* two tiles */
#define MOST_ROWS 11                  /* of a step */
#define SEED 20170612

/* The middle step is one row over more keys than one split (4,096, where memory allows), at neither
 * end of the batch.  Together the steps fill a tile of rows and begin another. */
static const size_t step_rows[STEPS] = {5, 1, 11}, step_lengths[STEPS] = {LEAST_LENGTH, 4200, 0};

/* A step may fail, where its numbers are beyond kv_dtype or float32; then it has to fail in any
 * batch. */
struct results {
    float *y; /* [rows][E] */
    enum attn_status status[STEPS];
};

struct check {
    const struct attn_model *model;
    const struct attn_layer_spec *spec;
    struct attn_cache_pool *pool;
    struct attn_engine *single; /* one thread */
    float *x;                   /* [rows][E] */
    struct results want, got;
    struct attn_step steps[STEPS];
};

/* The first layer that keeps a cache, NULL where none does; *index is its number. */
static const struct attn_layer_spec *find_layer(size_t *index, const struct attn_model *model)
{
    for (*index = 0; *index < ATTN_MAX_LAYERS; ++*index) {
        const struct attn_layer_spec *spec = attn_model_layer(model, *index);
        if (spec != NULL && !spec->is_cross && spec->shares_layer == SIZE_MAX &&
            spec->key_size == spec->hidden_size && spec->value_size == spec->hidden_size &&
            !attn_layer_needs_grid(spec))
            return spec;
    }
    return NULL;
}

/* ---- Making ---- */

/* The length of a cache that should have `wanted` tokens: as many, or what CACHE_BYTES allow. */
static size_t fit_length(const struct attn_layer_spec *spec, size_t wanted)
{
    size_t most = attn_max(CACHE_BYTES / attn_layer_token_bytes(spec), LEAST_LENGTH);
    if (spec->max_tokens > 0)
        most = attn_min(most, spec->max_tokens - attn_min(spec->max_tokens, MOST_ROWS));
    return attn_min(wanted, most);
}

/* Fills a cache.  Tokens differ within WRITE_TOKENS and repeat after them, which does not matter
 * here. */
static enum attn_status fill(struct attn_cache *cache, const struct check *check, size_t layer,
                             size_t length, struct attn_error *error)
{
    const struct attn_cached_sizes sizes = attn_cached_sizes(check->spec);
    const size_t keys = sizes.heads * sizes.key * WRITE_TOKENS;
    const size_t values = sizes.heads * sizes.value * WRITE_TOKENS;
    enum attn_status status = ATTN_OK;
    float *numbers = attn_alloc(keys + values, sizeof *numbers);
    if (numbers == NULL)
        return attn_fail_memory(error, (keys + values) * sizeof(float));
    attn_random_uniform(numbers, keys + values, attn_random_stream(SEED, layer, 1), 1);
    for (size_t i = 0; i < length && status == ATTN_OK; i += WRITE_TOKENS)
        status = attn_cache_write(cache, layer, attn_min(length - i, WRITE_TOKENS), numbers,
                                  numbers + keys, error);
    attn_free(numbers);
    return status;
}

static enum attn_status make_step(struct check *check, size_t i, size_t layer, size_t first,
                                  struct attn_error *error)
{
    size_t length = fit_length(check->spec, step_lengths[i]);
    struct attn_step *step = &check->steps[i];
    enum attn_status status =
        attn_cache_new(&step->cache, check->pool, check->model, length + step_rows[i], error);
    if (status == ATTN_OK)
        status = fill(step->cache, check, layer, length, error);
    step->position = length;
    step->rows = step_rows[i];
    step->hidden_states = check->x + first * check->spec->hidden_size;
    return status;
}

static enum attn_status set_up(struct check *check, struct attn_self_check *out,
                               const struct attn_engine *engine, struct attn_error *error)
{
    const struct attn_engine_options one = {.threads = 1,
                                            .level = attn_cpu_level_of(engine->kernels.features)};
    const size_t width = check->spec->hidden_size;
    enum attn_status status = attn_engine_open(&check->single, &one, error);
    if (status != ATTN_OK)
        return status;
    check->single->kernels = engine->kernels;
    check->x = attn_alloc(out->rows * width, sizeof *check->x);
    check->want.y = attn_calloc(out->rows * width, sizeof *check->want.y);
    check->got.y = attn_calloc(out->rows * width, sizeof *check->got.y);
    if (check->x == NULL || check->want.y == NULL || check->got.y == NULL ||
        attn_cache_pool_new(&check->pool, SIZE_MAX / 2) != ATTN_OK)
        return attn_fail_memory(error, out->rows * width);
    attn_random_uniform(check->x, out->rows * width, attn_random_stream(SEED, 0, 0), 1);
    for (size_t i = 0, first = 0; i < STEPS && status == ATTN_OK; first += step_rows[i++])
        status = make_step(check, i, out->layer, first, error);
    return status;
}

static void tear_down(struct check *check)
{
    for (size_t i = 0; i < STEPS; i++)
        attn_cache_free(check->steps[i].cache);
    attn_cache_pool_free(check->pool);
    attn_engine_close(check->single);
    attn_free(check->x);
    attn_free(check->want.y);
    attn_free(check->got.y);
}

/* ---- Computing ---- */

/* Runs steps [first, first + count) as one batch. */
static enum attn_status run(struct results *results, struct check *check,
                            struct attn_engine *engine, size_t layer, size_t first, size_t count,
                            struct attn_error *error)
{
    struct attn_step *list[STEPS];
    for (size_t i = 0; i < count; i++) {
        struct attn_step *step = list[i] = &check->steps[first + i];
        step->outputs.output = results->y + (step->hidden_states - check->x);
    }
    enum attn_status status = attn_decode(engine, check->model, layer, list, count);
    for (size_t i = 0; i < count; i++)
        results->status[first + i] = list[i]->error.status;
    if (status != ATTN_OK && error != NULL)
        *error = list[0]->error;
    return status;
}

/* Compares the results of these steps with those of each alone on one thread. */
static void compare(struct attn_self_check *out, const struct check *check, size_t first,
                    size_t count)
{
    for (size_t i = first; i < first + count && out->same; i++) {
        const struct attn_step *step = &check->steps[i];
        const size_t at = (size_t)(step->hidden_states - check->x);
        const size_t bytes = step->rows * check->spec->hidden_size * sizeof(float);
        out->same = check->want.status[i] == check->got.status[i] &&
                    (check->want.status[i] != ATTN_OK ||
                     memcmp(check->want.y + at, check->got.y + at, bytes) == 0);
        out->step_rows = step->rows;
        out->step_length = step->position;
        out->in_batch = count > 1;
    }
}

static enum attn_status compute_and_compare(struct attn_self_check *out, struct check *check,
                                            struct attn_engine *engine, struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    for (size_t i = 0; i < STEPS && status == ATTN_OK; i++)
        status = run(&check->want, check, check->single, out->layer, i, 1, error);
    if (status == ATTN_OK)
        status = run(&check->got, check, engine, out->layer, 0, STEPS, error);
    if (status != ATTN_OK)
        return status;
    compare(out, check, 0, STEPS);
    if (out->threads == 1)
        return ATTN_OK;
    status = run(&check->got, check, engine, out->layer, LONG_STEP, 1, error);
    if (status == ATTN_OK)
        compare(out, check, LONG_STEP, 1);
    return status;
}

/* ---- The note of a mapped file ---- */

#define PROVED "proved" /* the note's fact */

/* The digest of all that came together here: CPU, build, features, threads, weights.  False where
 * the weights are not mapped, or the build is unknown. */
static bool name_proof(char out[ATTN_CHECKSUM_DIGITS], const struct attn_engine *engine,
                       const struct attn_engine_info *info, const struct attn_model *model)
{
    const char *weights = attn_model_mapped_checksum(model);
    const uint32_t facts[] = {info->threads, engine->kernels.features, engine->gemm_mode};
    char cpu[ATTN_CPU_TEXT_MAX];
    struct attn_build_id build;
    struct attn_checksum sum;
    if (weights == NULL || !attn_build_id(&build))
        return false;
    attn_cpu_print(cpu);
    attn_checksum_init(&sum);
    attn_checksum_add(&sum, weights, ATTN_CHECKSUM_DIGITS);
    attn_checksum_add(&sum, build.bytes, build.count);
    attn_checksum_add(&sum, cpu, strlen(cpu));
    attn_checksum_add(&sum, facts, sizeof facts);
    attn_checksum_add(&sum, info->gemm_name, strlen(info->gemm_name));
    attn_checksum_hex(out, &sum);
    return true;
}

enum attn_status attn_self_check(struct attn_self_check *out, struct attn_engine *engine,
                                 const struct attn_model *model, struct attn_error *error)
{
    struct check check = {.model = model};
    struct attn_engine_info info;
    char proof[ATTN_CHECKSUM_DIGITS];
    *out = (struct attn_self_check){.same = true};
    check.spec = find_layer(&out->layer, model);
    if (check.spec == NULL) {
        out->layer = 0;
        return ATTN_OK;
    }
    attn_engine_describe(&info, engine);
    out->threads = info.threads;
    out->steps = STEPS;
    out->length = fit_length(check.spec, step_lengths[LONG_STEP]);
    for (size_t i = 0; i < STEPS; i++)
        out->rows += step_rows[i];
    const bool mapped = name_proof(proof, engine, &info, model);
    out->is_noted = mapped && attn_model_noted(model, PROVED, proof);
    if (out->is_noted)
        return ATTN_OK;
    enum attn_status status = set_up(&check, out, engine, error);
    if (status == ATTN_OK)
        status = compute_and_compare(out, &check, engine, error);
    tear_down(&check);
    if (status == ATTN_OK && out->same && mapped)
        attn_model_note(model, PROVED, proof);
    return status;
}
