/* weight_reading.c: tensors -> the float32 arrays of a layer.
 *
 * A fused tensor holds its projections as rows, one after the other or in turn for each key/value
 * head, or as columns.  Small arrays are read as a whole.  So are matrices that stand whole, on all
 * threads unless they are in an .npz file; of others the places of rows are told, which the loader
 * reads in strips. */
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "basics/mem.h"
#include "basics/random.h"
#include "basics/status.h"
#include "families/weights.h"
#include "layers/relative.h"

#define SCRATCH 262144      /* floats that all threads read at a time for transposed weights */
#define CHUNK_FLOATS 262144 /* floats of a tensor that a thread reads at a time */

/* Where a tensor's numbers for matrix i go. */
static float *destination_of(struct attn_layer *layer, const struct attn_family_tensor *pattern,
                             size_t i)
{
    const struct attn_members all = attn_layer_members(&layer->spec);
    size_t array = 0;
    if (pattern->role == ATTN_ROLE_WEIGHT)
        return layer->matrices[i].weight;
    if (pattern->role == ATTN_ROLE_BIAS)
        return layer->matrices[i].bias;
    while (all.arrays[array].role != pattern->role || all.arrays[array].projection != 1u << i)
        array++;
    return layer->arrays[array];
}

/* Elements of one projection in a tensor.  In other roles than weight and bias a tensor holds a
 * single projection. */
static size_t elements_of(const struct attn_binding *binding, const struct attn_linear *linear)
{
    const struct attn_tensor_entry *entry = binding->tensor.entry;
    if (binding->pattern->role == ATTN_ROLE_WEIGHT)
        return linear->out * linear->in;
    if (binding->pattern->role == ATTN_ROLE_BIAS)
        return linear->out;
    size_t elements = 1;
    for (size_t i = 0; i < entry->ndim; i++)
        elements *= entry->shape[i];
    return elements;
}

/* How often the projections of a tensor take turns in it. */
static size_t groups_of(const struct attn_checkpoint_layer *source,
                        const struct attn_family_tensor *pattern)
{
    if (pattern->projections == (ATTN_PROJ_Q | ATTN_PROJ_GATE))
        return source->spec.num_heads;
    bool grouped = source->config->family->layout == ATTN_LAYOUT_GROUPED;
    if (source->config->family->layout == ATTN_LAYOUT_QUARTERS &&
        pattern->projections == ATTN_PROJ_QKV)
        return ATTN_QUARTERS;
    const unsigned both = ATTN_PROJ_K | ATTN_PROJ_V;
    return grouped && (pattern->projections & both) == both ? source->spec.num_kv_heads : 1;
}

/* The n-th projection in a fused tensor, if it is there. */
static size_t projection_at(const struct attn_checkpoint_layer *source, size_t n)
{
    const bool turned = source->config->family->layout == ATTN_LAYOUT_QUARTERS &&
                        (n == ATTN_MATRIX_K || n == ATTN_MATRIX_V);
    return turned ? ATTN_MATRIX_K + ATTN_MATRIX_V - n : n;
}

/* ---- Ranges of a tensor, on all threads ---- */

/* Parts of a tensor that any thread reads: part i by read(). */
struct parts {
    enum attn_status (*read)(const struct parts *parts, size_t i, struct attn_error *error);
    const struct attn_tensor *tensor;
    atomic_bool failed;
    /* read_part */
    float *out;
    size_t first, count;
    /* read_strip */
    struct attn_layer *layer;
    const struct attn_binding *binding;
    size_t rows; /* of a strip */
};

static void read_task(void *context, size_t i, unsigned thread)
{
    struct parts *parts = context;
    (void)thread;
    if (!atomic_load(&parts->failed) && parts->read(parts, i, NULL) != ATTN_OK)
        atomic_store(&parts->failed, true);
}

/* Reads all parts.  After a failure they are read again in their order, for the first error. */
static enum attn_status read_parts(struct attn_pool *pool, struct parts *parts, size_t count,
                                   struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    const bool any_thread = parts->tensor->npz == NULL;
    if (any_thread)
        attn_pool_run(pool, read_task, parts, count);
    if (any_thread && !atomic_load(&parts->failed))
        return ATTN_OK;
    for (size_t i = 0; i < count && status == ATTN_OK; i++)
        status = parts->read(parts, i, error);
    return status;
}

static enum attn_status read_part(const struct parts *parts, size_t i, struct attn_error *error)
{
    const size_t at = i * CHUNK_FLOATS, count = attn_min(parts->count - at, CHUNK_FLOATS);
    return attn_tensor_read_f32(parts->out + at, parts->tensor, parts->first + at, count, error);
}

/* Reads a tensor whose projections follow each other as rows, once, or in turn for each group of
 * heads: one range of elements per projection and group. */
static enum attn_status read_rows(struct attn_layer *out, const struct attn_binding *binding,
                                  const struct attn_checkpoint_layer *source,
                                  struct attn_pool *pool, struct attn_error *error)
{
    const size_t groups = groups_of(source, binding->pattern);
    size_t first = 0;
    for (size_t g = 0; g < groups; g++)
        for (size_t n = 0; n < ATTN_NUM_MATRICES; n++) {
            const size_t i = projection_at(source, n);
            if ((binding->pattern->projections & 1u << i) == 0)
                continue;
            size_t count = elements_of(binding, &out->matrices[i]) / groups;
            float *destination = destination_of(out, binding->pattern, i);
            struct parts parts = {.read = read_part,
                                  .tensor = &binding->tensor,
                                  .out = destination + g * count,
                                  .first = first,
                                  .count = count};
            enum attn_status status =
                read_parts(pool, &parts, attn_ceil_div(count, CHUNK_FLOATS), error);
            if (status != ATTN_OK)
                return status;
            first += count;
        }
    return ATTN_OK;
}

/* weight[o][row + r] = columns[r][o], r < rows: a strip of a weight [out][in]. */
static void transpose(struct attn_linear *linear, size_t row, const float *columns, size_t stride,
                      size_t rows)
{
    for (size_t o = 0; o < linear->out; o++) {
        float *strip = linear->weight + o * linear->in + row;
        for (size_t r = 0; r < rows; r++)
            strip[r] = columns[r * stride + o];
    }
}

/* Reads a strip of rows of a tensor [in][total out]; the projections are ranges of columns. */
static enum attn_status read_strip(const struct parts *parts, size_t strip,
                                   struct attn_error *error)
{
    const size_t in = parts->tensor->entry->shape[0], total = parts->tensor->entry->shape[1];
    const size_t row = strip * parts->rows, rows = attn_min(in - row, parts->rows);
    float *scratch = attn_alloc(attn_mul(rows, total), sizeof *scratch); /* [rows][total] */
    if (scratch == NULL)
        return attn_fail_memory(error, rows * total * sizeof *scratch);
    const enum attn_status status =
        attn_tensor_read_f32(scratch, parts->tensor, row * total, rows * total, error);
    size_t column = 0;
    for (size_t i = 0; i < ATTN_NUM_MATRICES && status == ATTN_OK; i++) {
        if ((parts->binding->pattern->projections & 1u << i) == 0)
            continue;
        struct attn_linear *linear = &parts->layer->matrices[i];
        transpose(linear, row, scratch + column, total, rows);
        column += linear->out;
    }
    attn_free(scratch);
    return status;
}

static enum attn_status read_columns(struct attn_layer *out, const struct attn_binding *binding,
                                     struct attn_pool *pool, struct attn_error *error)
{
    const struct attn_tensor_entry *entry = binding->tensor.entry;
    struct parts parts = {.read = read_strip,
                          .tensor = &binding->tensor,
                          .layer = out,
                          .binding = binding,
                          .rows = attn_max(SCRATCH / attn_pool_threads(pool) / entry->shape[1], 1)};
    return read_parts(pool, &parts, attn_ceil_div(entry->shape[0], parts.rows), error);
}

/* ---- A layer ---- */

/* Makes of the stored weights of a norm those by which it multiplies: stored as w - 1 by some
 * families; with the factor of the latent that comes out of it. */
static void finish_norm(float *weight, size_t count, const struct attn_checkpoint_layer *of,
                        unsigned projection)
{
    const struct attn_hf_config *hf = &of->config->hf;
    const bool scaled = (projection == ATTN_PROJ_Q_A && hf->scale_q_lora) ||
                        (projection == ATTN_PROJ_KV_A && hf->scale_kv_lora);
    for (size_t i = 0; i < count && of->config->family->norm_plus_one; i++)
        weight[i] += 1;
    for (size_t i = 0; i < count && scaled; i++)
        weight[i] *= (float)sqrt((double)hf->hidden_size / (double)count);
}

/* Puts rows 2i and 2i + 1 of the last components of each head, which rotate together, at i and half
 * their number after it.  rows [count][in] are those of whole heads. */
static enum attn_status gather(float *rows, const struct attn_weight_rows *of, size_t count,
                               struct attn_error *error)
{
    const size_t width = of->gathered, in = of->in;
    float *scratch = attn_alloc(attn_mul(width, in), sizeof *scratch);
    if (scratch == NULL)
        return attn_fail_memory(error, width * in * sizeof *scratch);
    for (size_t row = of->head; row <= count; row += of->head) {
        float *last = rows + (row - width) * in;
        memcpy(scratch, last, width * in * sizeof *last);
        for (size_t i = 0; i < width; i++)
            memcpy(last + (i % 2 * (width / 2) + i / 2) * in, scratch + i * in, in * sizeof *last);
    }
    attn_free(scratch);
    return ATTN_OK;
}

/* Where each head has a tensor: reads those of all heads but the first. */
static enum attn_status read_other_heads(struct attn_layer *out,
                                         const struct attn_weights_source *source,
                                         const struct attn_checkpoint_layer *own,
                                         const struct attn_binding *binding,
                                         struct attn_error *error)
{
    const size_t heads = attn_tensor_heads(own, binding->pattern);
    const size_t width = elements_of(binding, NULL);
    float *to =
        destination_of(out, binding->pattern, (size_t)__builtin_ctz(binding->pattern->projections));
    enum attn_status status = ATTN_OK;
    for (size_t head = 1; head < heads && status == ATTN_OK; head++) {
        struct attn_tensor tensor;
        status = attn_find_tensor(&tensor, source->checkpoint, own, binding->pattern, head, error);
        if (status == ATTN_OK)
            status = attn_tensor_read_f32(to + head * width, &tensor, 0, width, error);
    }
    return status;
}

/* Puts the biases of rows that rotate together half their number apart, as gather does the rows. */
static enum attn_status gather_bias(struct attn_linear *linear, struct attn_error *error)
{
    const struct attn_weight_rows rows = {.in = 1, .head = linear->out, .gathered = linear->out};
    return gather(linear->bias, &rows, linear->out, error);
}

enum attn_status attn_weights_read(struct attn_layer *out, const struct attn_weights_source *source,
                                   size_t layer, struct attn_error *error)
{
    const struct attn_config *config = source->config;
    const struct attn_checkpoint_layer own = attn_checkpoint_layer(config, layer);
    bool transposed = config->layout == ATTN_LAYOUT_TRANSPOSED;
    struct attn_bindings bindings;
    enum attn_status status = attn_bind_layer(&bindings, source->checkpoint, &own, error);
    for (size_t i = 0; status == ATTN_OK && i < bindings.count; i++) {
        const struct attn_binding *binding = &bindings.items[i];
        const enum attn_tensor_role role = binding->pattern->role;
        const size_t first = (size_t)__builtin_ctz(binding->pattern->projections);
        if (role == ATTN_ROLE_WEIGHT && out->matrices[first].weight == NULL)
            continue; /* its matrices do not stand whole */
        if (role == ATTN_ROLE_WEIGHT)
            attn_read_ahead_advance(source->ahead,
                                    binding->tensor.entry->end - binding->tensor.entry->begin);
        if (transposed && role == ATTN_ROLE_WEIGHT && binding->tensor.quantized == NULL)
            status = read_columns(out, binding, source->pool, error);
        else
            status = read_rows(out, binding, &own, source->pool, error);
        if (status == ATTN_OK && attn_tensor_heads(&own, binding->pattern) > 0)
            status = read_other_heads(out, source, &own, binding, error);
        if (status == ATTN_OK && role == ATTN_ROLE_BIAS && config->hf.rope_gathered &&
            (binding->pattern->projections & ATTN_PROJ_K_ROPE) != 0)
            status = gather_bias(&out->k_rope, error);
        if (status == ATTN_OK && role == ATTN_ROLE_NORM)
            finish_norm(destination_of(out, binding->pattern, first), elements_of(binding, NULL),
                        &own, binding->pattern->projections);
    }
    return status;
}

/* ---- Rows ---- */

bool attn_weights_have_rows(const struct attn_config *config, const struct attn_layer_spec *spec)
{
    return config->layout != ATTN_LAYOUT_TRANSPOSED && attn_relative_rows(spec) == 0;
}

/* Tells the rows of the projections of a tensor. */
static void locate(struct attn_weight_rows out[ATTN_NUM_MATRICES], struct attn_layer *layer,
                   const struct attn_binding *binding, const struct attn_checkpoint_layer *source)
{
    const size_t groups = groups_of(source, binding->pattern);
    size_t stride = 0;
    for (size_t n = 0; n < ATTN_NUM_MATRICES; n++) {
        const size_t i = projection_at(source, n);
        const struct attn_linear *linear = &layer->matrices[i];
        if ((binding->pattern->projections & 1u << i) == 0)
            continue;
        out[i] = (struct attn_weight_rows){.tensor = binding->tensor,
                                           .first = stride,
                                           .run = linear->out / groups,
                                           .in = linear->in};
        stride += linear->out * linear->in / groups;
    }
    for (size_t i = 0; i < ATTN_NUM_MATRICES; i++)
        if ((binding->pattern->projections & 1u << i) != 0)
            out[i].stride = stride;
}

enum attn_status attn_weights_rows(struct attn_weight_rows out[ATTN_NUM_MATRICES],
                                   struct attn_layer *layer,
                                   const struct attn_weights_source *source, size_t index,
                                   struct attn_error *error)
{
    const struct attn_checkpoint_layer own = attn_checkpoint_layer(source->config, index);
    struct attn_bindings bindings;
    enum attn_status status = attn_bind_layer(&bindings, source->checkpoint, &own, error);
    for (size_t i = 0; status == ATTN_OK && i < bindings.count; i++) {
        const struct attn_binding *binding = &bindings.items[i];
        if (binding->pattern->role == ATTN_ROLE_WEIGHT)
            locate(out, layer, binding, &own);
    }
    const size_t width = layer->spec.mla.rope_head_dim;
    if (source->config->hf.rope_gathered) {
        out[ATTN_MATRIX_Q].head = layer->spec.head_dim;
        out[ATTN_MATRIX_K_ROPE].head = width;
        out[ATTN_MATRIX_Q].gathered = out[ATTN_MATRIX_K_ROPE].gathered = width;
    }
    return status;
}

enum attn_status attn_weight_rows_read(float *out, const struct attn_weight_rows *rows, size_t row,
                                       size_t count, struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    if (rows->tensor.entry == NULL)
        attn_random_uniform_from(out, row * rows->in, count * rows->in, rows->stream, rows->bound);
    for (size_t n, at = 0; rows->tensor.entry != NULL && at < count && status == ATTN_OK; at += n) {
        const size_t run = (row + at) / rows->run, within = (row + at) % rows->run;
        n = attn_min(count - at, rows->run - within);
        status = attn_tensor_read_f32(out + at * rows->in, &rows->tensor,
                                      rows->first + run * rows->stride + within * rows->in,
                                      n * rows->in, error);
    }
    if (status == ATTN_OK && rows->gathered > 0)
        status = gather(out, rows, count, error);
    return status;
}
