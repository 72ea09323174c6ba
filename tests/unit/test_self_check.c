/* test_self_check.c: the proof of batch invariance at start: every kernel passes it, and kernels
 * whose bits depend on neighbouring rows or on threads do not. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "attn_self_check.h"
#include "engine/engine.h"
#include "main.h"
#include "opened.h"
#include "suites.h"

static struct attn_error error;

static struct attn_model *open_model(const char *config, enum attn_dtype dtype,
                                     enum attn_dtype kv_dtype)
{
    struct attn_model *model;
    const struct attn_model_options options = {.dtype = dtype, .kv_dtype = kv_dtype};
    model = opened_random(config, &options);
    return model;
}

static struct attn_engine *open_engine(unsigned threads)
{
    struct attn_engine *engine;
    const struct attn_engine_options options = {.threads = threads};
    ck_assert_int_eq(attn_engine_open(&engine, &options, &error), ATTN_OK);
    return engine;
}

#define GROUPED                                                       \
    "{\"hidden_size\":416,\"num_attention_heads\":8,\"head_dim\":40," \
    "\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"rope_theta\":10000,\"seed\":1}"

/* ---- Right kernels --------------------------------------------------------------------------- */

static const enum attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_INT8, ATTN_W8A16};

TEST_EACH(self_check_holds_for_every_dtype_at_every_level, 4)
{
    for (unsigned kv = ATTN_F32; kv <= ATTN_INT8; kv++) {
        struct attn_model *model = open_model(GROUPED, dtypes[_i], (enum attn_dtype)kv);
        for (unsigned i = 0; i < 2 * ATTN_NUM_CPU_LEVELS; i++) {
            struct attn_self_check found;
            struct attn_engine *engine;
            const struct attn_engine_options options = {.threads = 1 + i % 2, .level = i / 2};
            enum attn_status status = attn_engine_open(&engine, &options, &error);
            if (status == ATTN_UNSUPPORTED)
                continue;
            ck_assert_int_eq(status, ATTN_OK);
            ck_assert_int_eq(attn_self_check(&found, engine, model, &error), ATTN_OK);
            ck_assert_msg(found.same, "level %u, %u threads: a step of %zu rows over %zu tokens",
                          i / 2, 1 + i % 2, found.step_rows, found.step_length);
            ck_assert_uint_eq(found.rows, 17);
            ck_assert_uint_gt(found.length, 4096);
            attn_engine_close(engine);
        }
        attn_model_close(model);
    }
}

TEST(self_check_passes_over_layers_without_a_cache)
{
    struct attn_self_check found;
    struct attn_engine *engine = open_engine(2);
    struct attn_model *model = open_model(
        "{\"hidden_size\":16,\"num_attention_heads\":2,\"is_cross\":true}", ATTN_F32, ATTN_F32);
    ck_assert_int_eq(attn_self_check(&found, engine, model, &error), ATTN_OK);
    ck_assert(found.same);
    ck_assert_uint_eq(found.steps, 0);
    attn_model_close(model);
    attn_engine_close(engine);
}

/* ---- Wrong kernels --------------------------------------------------------------------------- */

static struct attn_kernels right; /* which the wrong ones call */

/* Adds one bit to the last row, as a kernel would that sums a tile's remainder in another order. */
static void nudge(float *row) { row[0] = nextafterf(row[0], INFINITY); }

static void project_by_rows(const struct attn_projection_part *product)
{
    right.project[ATTN_F32](product);
    if (product->rows > 1)
        nudge(product->y + (product->rows - 1) * product->ldy);
}

/* Is wrong only where more than one tile of rows is full. */
static void project_by_tile(const struct attn_projection_part *product)
{
    right.project[ATTN_F32](product);
    if (product->rows > 14)
        nudge(product->y + 15 * product->ldy);
}

/* Is wrong in the last column of a piece: the number of threads decides where a product is
 * split. */
static void project_by_cut(const struct attn_projection_part *product)
{
    right.project[ATTN_F32](product);
    for (size_t r = 0; r < product->rows; r++)
        nudge(product->y + r * product->ldy + product->n - 1);
}

/* Makes results that do not fit f16. */
static void project_far(const struct attn_projection_part *product)
{
    right.project[ATTN_F32](product);
    for (size_t r = 0; r < product->rows; r++)
        for (size_t j = 0; j < product->n; j++)
            product->y[r * product->ldy + j] *= 1e7f;
}

struct fault {
    const char *what;
    void (*project)(const struct attn_projection_part *product);
    unsigned least_threads; /* with which the defect shows */
};

static const struct fault faults[] = {
    {"a product whose last row depends on how many there are", project_by_rows, 1},
    {"a product whose second tile of rows is summed otherwise", project_by_tile, 1},
    {"a product whose columns depend on where it is cut", project_by_cut, 2},
};
#define NUM_FAULTS ((int)COUNT(faults))

/* Opens an engine whose product is replaced by that one. */
static struct attn_engine *open_faulty(unsigned threads,
                                       void (*project)(const struct attn_projection_part *product))
{
    struct attn_engine *engine = open_engine(threads);
    right = engine->kernels;
    engine->kernels.project[ATTN_F32] = project;
    return engine;
}

TEST_EACH(self_check_finds_kernels_whose_bits_depend_on_neighbours_or_threads, NUM_FAULTS)
{
    struct attn_model *model = open_model(GROUPED, ATTN_F32, ATTN_F32);
    for (unsigned threads = faults[_i].least_threads; threads <= 3; threads++) {
        struct attn_self_check found;
        struct attn_engine *engine = open_faulty(threads, faults[_i].project);
        ck_assert_int_eq(attn_self_check(&found, engine, model, &error), ATTN_OK);
        ck_assert_msg(!found.same, "%u threads: %s", threads, faults[_i].what);
        ck_assert_uint_gt(found.step_rows, 0);
        attn_engine_close(engine);
    }
    attn_model_close(model);
}

TEST(self_check_takes_a_step_that_fails_in_any_company_for_the_same)
{
    struct attn_self_check found;
    struct attn_model *model = open_model(GROUPED, ATTN_F32, ATTN_F16);
    struct attn_engine *engine = open_faulty(2, project_far);
    ck_assert_int_eq(attn_self_check(&found, engine, model, &error), ATTN_OK);
    ck_assert(found.same);
    attn_model_close(model);
    attn_engine_close(engine);
}

TEST(self_check_lets_no_daemon_start_with_such_kernels)
{
    struct srv_model item = {.name = "doubtful"};
    struct srv_app app = {.models = {.items = &item, .count = 1}};
    char message[SRV_MESSAGE_MAX] = "";
    item.attn = open_model(GROUPED, ATTN_F32, ATTN_F32);
    srv_log_open(&app.log, SRV_LOG_OFF, -1);
    app.engine = open_engine(2);
    ck_assert_msg(srv_self_check(&app, message), "%s", message);
    attn_engine_close(app.engine);
    app.engine = open_faulty(2, project_by_tile);
    ck_assert(!srv_self_check(&app, message));
    ck_assert_ptr_nonnull(strstr(message, "model doubtful: self-check: a step of 11 rows over 0 "));
    ck_assert_ptr_nonnull(strstr(message, "--cpu-level"));
    attn_engine_close(app.engine);
    attn_model_close(item.attn);
    srv_log_close(&app.log);
}

SUITE(self_check)
