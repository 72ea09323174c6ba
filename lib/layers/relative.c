/* relative.c: rows of distances; queries and keys made of a table's rows. */
#include "layers/layer.h"

#include <math.h>

#include "basics/mem.h"
#include "basics/status.h"
#include "basics/tile.h"

#define CHAINS 16 /* partial sums of a product, which the compiler computes side by side */

/* ---- Specification ---- */

size_t attn_relative_rows(const struct attn_layer_spec *spec)
{
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    const size_t half = bias->buckets != 0 ? bias->buckets : bias->max_distance;
    if (bias->type == ATTN_BIAS_RELATIVE_KEY)
        return bias->max_distance + bias->max_after + 1;
    return bias->type == ATTN_BIAS_DISENTANGLED ? 2 * half : 0;
}

/* The longest distance that has a row of its own, or shares one. */
static size_t reach_of(const struct attn_position_bias_spec *bias)
{
    return attn_max(bias->max_distance, bias->max_after);
}

size_t attn_relative_floats(const struct attn_layer_spec *spec)
{
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    const size_t rows = attn_relative_rows(spec), width = spec->num_heads * spec->head_dim;
    const size_t tiled = attn_ceil_div(rows, ATTN_TILE) * ATTN_TILE;
    if (rows == 0)
        return 0;
    return (bias->content_to_position ? tiled * width : 0) +
           (bias->position_to_content ? rows * width : 0) + 2 * reach_of(bias) + 1;
}

enum attn_status attn_relative_check(const struct attn_layer_spec *spec, struct attn_error *error)
{
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    const bool relative_key = bias->type == ATTN_BIAS_RELATIVE_KEY;
    const char *key = relative_key ? "position_embeddings_type" : "pos_att_type";
    if (bias->type != ATTN_BIAS_DISENTANGLED && !relative_key)
        return ATTN_OK;
    if (spec->num_kv_heads != spec->num_heads)
        return attn_fail(error, ATTN_UNSUPPORTED, key,
                         "%s needs as many key/value heads as query heads", key);
    if (spec->is_cross || spec->key_size != spec->hidden_size)
        return attn_fail(error, ATTN_UNSUPPORTED, key, "%s needs queries and keys of the same rows",
                         key);
    if (relative_key)
        return reach_of(bias) <= ATTN_MAX_BUCKETS
                   ? ATTN_OK
                   : attn_fail(error, ATTN_OUT_OF_RANGE, "left_max_position_embeddings",
                               "relative keys reach %zu tokens, at most %d are allowed",
                               reach_of(bias), ATTN_MAX_BUCKETS);
    if (bias->max_distance < 1 || bias->max_distance > ATTN_MAX_BUCKETS)
        return attn_fail(error, ATTN_OUT_OF_RANGE, "max_relative_positions",
                         "max_relative_positions is %zu, allowed are 1 to %d", bias->max_distance,
                         ATTN_MAX_BUCKETS);
    if (bias->buckets != 0 &&
        (bias->buckets < 4 || bias->buckets % 2 != 0 || bias->buckets / 2 + 2 > bias->max_distance))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "position_buckets",
                         "position_buckets is %zu, allowed are even numbers from 4 to %zu",
                         bias->buckets, 2 * (bias->max_distance - attn_min(bias->max_distance, 2)));
    if (!(bias->table_norm_eps >= 0 && bias->table_norm_eps <= 1))
        return attn_fail(error, ATTN_OUT_OF_RANGE, "layer_norm_eps",
                         "layer_norm_eps is %g, must be 0 to 1", bias->table_norm_eps);
    return ATTN_OK;
}

/* ---- Distances ---- */

/* The bucket of a distance in the float32 arithmetic of Hugging Face: one that is off by one would
 * be another learned row. */
static int64_t bucket_of(const struct attn_position_bias_spec *bias, int64_t distance)
{
    const int64_t half = (int64_t)bias->buckets / 2, far = distance < 0 ? -distance : distance;
    if (bias->buckets == 0 || far <= half)
        return distance;
    const float range = logf((float)((double)(bias->max_distance - 1) / (double)half));
    const float ratio = logf((float)far / (float)half) / range;
    const int64_t bucket = (int64_t)ceilf(ratio * (float)(half - 1)) + half;
    return distance < 0 ? -bucket : bucket;
}

bool attn_relative_shape(struct attn_relative *out, const struct attn_layer_spec *spec)
{
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    const size_t rows = attn_relative_rows(spec);
    const int64_t last = (int64_t)rows - 1;
    /* The row of distance 0; relative keys tell distances apart from -max_after to max_distance. */
    const int64_t half =
        bias->type == ATTN_BIAS_RELATIVE_KEY ? (int64_t)bias->max_after : (int64_t)rows / 2;
    *out = (struct attn_relative){.rows = rows, .tiles = attn_ceil_div(rows, ATTN_TILE)};
    if (rows == 0)
        return true;
    out->reach = (int64_t)reach_of(bias);
    out->row = attn_alloc(2 * (size_t)out->reach + 1, sizeof *out->row);
    for (int64_t d = -out->reach; out->row != NULL && d <= out->reach; d++) {
        const int64_t row = bucket_of(bias, d) + half;
        out->row[d + out->reach] = (int32_t)(row < 0 ? 0 : row > last ? last : row);
    }
    return out->row != NULL;
}

/* ---- Tables ---- */

/* LayerNorm of each row of the table. */
static void normalize(struct attn_layer *layer, size_t rows)
{
    const double eps = layer->spec.position_bias.table_norm_eps;
    const size_t width = layer->spec.hidden_size;
    for (size_t r = 0; r < rows; r++) {
        float *x = layer->bias_table + r * width;
        double mean = 0, squares = 0;
        for (size_t i = 0; i < width; i++)
            mean += (double)x[i] / (double)width;
        for (size_t i = 0; i < width; i++)
            squares += ((double)x[i] - mean) * ((double)x[i] - mean);
        const double factor = 1 / sqrt(squares / (double)width + eps);
        for (size_t i = 0; i < width; i++)
            x[i] = (float)(((double)x[i] - mean) * factor * (double)layer->table_norm[i] +
                           (double)layer->table_norm_bias[i]);
    }
}

static float product(const float *a, const float *b, size_t n)
{
    float sums[CHAINS] = {0}, sum = 0;
    size_t i = 0;
    for (; i + CHAINS <= n; i += CHAINS)
        for (size_t c = 0; c < CHAINS; c++)
            sums[c] += a[i + c] * b[i + c];
    for (; i < n; i++)
        sum += a[i] * b[i];
    for (size_t c = 0; c < CHAINS; c++)
        sum += sums[c];
    return sum;
}

/* Where projected rows go. */
struct destination {
    float *data;
    size_t head, tile, row, number; /* strides of a head, 64 rows, a row among them, a number */
};

static float *element(const struct destination *to, size_t head, size_t row, size_t number)
{
    return to->data + head * to->head + row / ATTN_TILE * to->tile + row % ATTN_TILE * to->row +
           number * to->number;
}

static enum attn_status project(const struct destination *to, const struct attn_linear *linear,
                                const float *table, size_t rows, size_t head_dim,
                                struct attn_error *error)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t o = 0; o < linear->out; o++) {
            const float sum =
                product(linear->weight + o * linear->in, table + r * linear->in, linear->in) +
                (linear->bias != NULL ? linear->bias[o] : 0);
            if (!(fabsf(sum) <= ATTN_MAX_MAGNITUDE))
                return attn_fail(error, ATTN_OUT_OF_RANGE, "rel_embeddings",
                                 "rel_embeddings: row %zu is projected to %g, at most %g is "
                                 "allowed",
                                 r, (double)sum, (double)ATTN_MAX_MAGNITUDE);
            *element(to, o / head_dim, r, o % head_dim) = sum;
        }
    return ATTN_OK;
}

/* Relative keys: the table's rows for each head, as distances i - j ascend. */
static enum attn_status copy_keys(struct attn_layer *layer, size_t rows, struct attn_error *error)
{
    const size_t d = layer->spec.head_dim, tiles = layer->relative.tiles;
    const bool backward = layer->spec.position_bias.backward;
    const enum attn_status status = attn_check_magnitudes(
        layer->bias_table, attn_mul(rows, d), ATTN_MAX_MAGNITUDE, "distance_embedding", error);
    for (size_t h = 0; h < layer->spec.num_heads && status == ATTN_OK; h++)
        for (size_t x = 0; x < rows; x++)
            for (size_t i = 0; i < d; i++)
                layer->relative
                    .keys[((h * tiles + x / ATTN_TILE) * d + i) * ATTN_TILE + x % ATTN_TILE] =
                    layer->bias_table[(backward ? x : rows - 1 - x) * d + i];
    return status;
}

/* The map that makes keys, or queries, of rows: the layer's, or one of its own. */
static struct attn_linear map_of(const struct attn_layer *layer, bool key)
{
    struct attn_linear map = key ? layer->k : layer->q;
    if (layer->spec.position_bias.own_projections) {
        map.weight = key ? layer->position_key : layer->position_query;
        map.bias = key ? layer->position_key_bias : layer->position_query_bias;
    }
    return map;
}

enum attn_status attn_relative_init(struct attn_layer *layer, struct attn_error *error)
{
    const struct attn_layer_spec *spec = &layer->spec;
    struct attn_relative *out = &layer->relative;
    const size_t d = spec->head_dim, rows = attn_relative_rows(spec);
    enum attn_status status = ATTN_OK;
    const bool made = attn_relative_shape(out, spec);
    if (rows == 0)
        return ATTN_OK;
    const struct attn_position_bias_spec *bias = &spec->position_bias;
    const size_t width = spec->num_heads * d;
    if (bias->content_to_position)
        out->keys = attn_calloc(attn_mul(out->tiles * ATTN_TILE, width), sizeof(float));
    if (bias->position_to_content)
        out->queries = attn_alloc(attn_mul(rows, width), sizeof(float));
    if (!made || (out->keys == NULL && bias->content_to_position) ||
        (out->queries == NULL && bias->position_to_content))
        return attn_fail_memory(error, attn_relative_floats(spec) * sizeof(float));
    const size_t tile = d * ATTN_TILE;
    const struct destination keys = {out->keys, out->tiles * tile, tile, 1, ATTN_TILE};
    const struct destination queries = {out->queries, rows * d, tile, d, 1};
    const struct attn_linear to_key = map_of(layer, true), to_query = map_of(layer, false);
    if (bias->type == ATTN_BIAS_RELATIVE_KEY)
        return copy_keys(layer, rows, error);
    if (layer->table_norm != NULL)
        normalize(layer, rows);
    if (out->keys != NULL)
        status = project(&keys, &to_key, layer->bias_table, rows, d, error);
    if (status == ATTN_OK && out->queries != NULL)
        status = project(&queries, &to_query, layer->bias_table, rows, d, error);
    return status;
}

void attn_relative_fini(struct attn_relative *relative)
{
    attn_free(relative->row);
    attn_free(relative->keys);
    attn_free(relative->queries);
    *relative = (struct attn_relative){0};
}
