/* outputs.c: from the names of outputs to buffers, and from buffers to text or bytes.
 *
 * A part is one buffer of struct attn_outputs.  list_parts is the table of parts: their shapes
 * under the call's selection, and the text around them in a reply.  Allocating and writing both go
 * by that table, so that a request is charged for exactly the outputs that are written. */
#include "wire/outputs.h"

#include "base/number.h"
#include "wire/v2.h"

/* ---- The table ---- */

enum element_kind {
    FLOATS,
    HALVES,  /* floats that become FP16 in binary form */
    BYTES,   /* floats that become UINT8 there, with the range of each map */
    INDICES, /* uint32_t */
    STATS,   /* struct attn_head_stats, an object each */
    GROUPS,  /* struct attn_group_stats, which the objects of STATS show */
    CHANGES, /* double, likewise */
    SCRATCH, /* floats that the library needs and no reply shows */
    SUMS,    /* doubles likewise */
};

#define NUMBER_TEXT (SRV_NUMBER_MAX + 1) /* bytes that the writer reserves for a number */
#define RANGE_TEXT (2 * NUMBER_TEXT + 4) /* of a map, for its minimum, maximum and brackets */
#define ITEM_TEXT 600 /* bytes charged for an item of a reply without its outputs, or its error */

static const struct {
    size_t element;   /* bytes in memory */
    size_t binary;    /* bytes in binary form; 0: no reply shows it */
    const char *type; /* datatype in binary form; NULL: always text, or nothing */
    enum srv_map_datatype narrow;
} element_kinds[] = {
    [FLOATS] = {sizeof(float), 4, "FP32", SRV_MAP_FP32},
    [HALVES] = {sizeof(float), 2, "FP16", SRV_MAP_FP16},
    [BYTES] = {sizeof(float), 1, "UINT8", SRV_MAP_UINT8},
    [INDICES] = {sizeof(uint32_t), 4, "UINT32", SRV_MAP_FP32},
    [STATS] = {sizeof(struct attn_head_stats), 4, NULL, SRV_MAP_FP32},
    [GROUPS] = {.element = sizeof(struct attn_group_stats)},
    [CHANGES] = {.element = sizeof(double)},
    [SCRATCH] = {.element = sizeof(float)},
    [SUMS] = {.element = sizeof(double)},
};

struct part {
    const char *name;           /* of the output that the part belongs to */
    const char *before, *after; /* text around the part in a reply */
    unsigned outputs;           /* enum srv_output: one of them must be asked for */
    size_t offset;              /* of the part's pointer in struct attn_outputs */
    enum element_kind kind;
    bool left_out; /* of this call, though its output is asked for */
    unsigned rank;
    size_t shape[4]; /* [rank], B first */
};

struct parts {
    struct part list[SRV_OUTPUT_TENSORS];
};

#define OF(output, member) \
    .outputs = SRV_OUT_##output, .offset = offsetof(struct attn_outputs, member)
#define PART(output_name, output, member) \
    .name = output_name, .before = ",\"" output_name "\":", .after = "", OF(output, member)
#define TOP_PART(before_it, after_it, member) \
    .name = "attention_weights", .before = before_it, .after = after_it, OF(WEIGHTS, member)

static const enum element_kind map_kinds[SRV_MAP_DATATYPES] = {
    [SRV_MAP_FP32] = FLOATS, [SRV_MAP_FP16] = HALVES, [SRV_MAP_UINT8] = BYTES};

/* R' or C': `size` cells in at most `bins`; 0: as they are. */
static size_t pooled(size_t size, size_t bins) { return bins > 0 && bins < size ? bins : size; }

/* The doubles that pooling needs, once the maps have buffers. */
static size_t sums_of(const struct attn_outputs *out, const struct srv_sizes *s)
{
    const struct attn_map_sizes sizes = {.batch = s->batch,
                                         .num_heads = s->num_heads,
                                         .num_kv_heads = s->num_kv_heads,
                                         .queries = s->queries,
                                         .keys = s->keys,
                                         .columns = s->columns};
    return attn_pool_sums(out, &sizes);
}

/* H' and T' are the selected heads and rows, W the columns of attention weights, K is top_k.
 * head_stats are computed for all heads; the reply shows those selected.  `rows` ask for parts;
 * NULL: those that have buffers were asked for. */
static struct parts list_parts(const struct attn_outputs *out, const struct srv_rows *rows,
                               const struct srv_sizes *s)
{
    const bool mean = rows != NULL ? rows->average_heads : out->average_weights != NULL;
    const bool top = rows != NULL ? rows->top_k > 0 : out->top_index != NULL;
    size_t b = s->batch, t = s->queries, h = s->num_heads, g = s->num_kv_heads, k = out->top_k;
    size_t shown_heads = out->selection.heads != NULL ? out->selection.num_heads : h; /* H' */
    size_t shown_rows = out->selection.rows != NULL ? out->selection.num_rows : t;    /* T' */
    size_t high = pooled(shown_rows, out->pool.rows);
    size_t wide = pooled(s->columns, out->pool.columns), keys = pooled(s->keys, out->pool.columns);
    size_t top_rows = mean ? shown_rows : shown_heads, top_columns = mean ? k : shown_rows;
    const enum element_kind map = map_kinds[s->map_datatype];
    const bool weightless = s->hidden_size == 0;
    /* The third dimension of the output; that of one row of [H,D] is the width of values. */
    size_t third = !weightless ? s->hidden_size : s->one_row ? s->value_head_dim : t;
    return (struct parts){{
        {PART("output", OUTPUT, output), .kind = FLOATS, .rank = weightless && !s->one_row ? 4 : 3,
         .shape = {b, weightless ? h : t, third, s->value_head_dim}},
        {PART("attention_weights", WEIGHTS, attention_weights), .kind = map,
         .left_out = mean || top, .rank = 4, .shape = {b, shown_heads, high, wide}},
        {PART("attention_weights", WEIGHTS, average_weights), .kind = top ? SCRATCH : map,
         .left_out = !mean, .rank = 3, .shape = {b, high, wide}},
        {TOP_PART(",\"attention_weights\":{\"index\":", "", top_index), .kind = INDICES,
         .left_out = !top, .rank = mean ? 3 : 4, .shape = {b, top_rows, top_columns, k}},
        {TOP_PART(",\"weight\":", "}", top_weight), .kind = FLOATS, .left_out = !top,
         .rank = mean ? 3 : 4, .shape = {b, top_rows, top_columns, k}},
        {PART("attention_scores", SCORES, attention_scores), .kind = map, .rank = 4,
         .shape = {b, shown_heads, high, keys}},
        {PART("head_stats", STATS, head_stats), .kind = STATS, .rank = 2, .shape = {b, h}},
        {PART("head_stats", STATS, group_stats), .kind = GROUPS,
         .left_out = out->num_target_groups == 0, .rank = 3,
         .shape = {b, h, out->num_target_groups}},
        {PART("head_stats", STATS, ablation), .kind = CHANGES,
         .left_out = rows == NULL || !rows->ablate, .rank = 2, .shape = {b, h}},
        {PART("lse", LSE, lse), .kind = FLOATS, .rank = 3, .shape = {b, h, t}},
        {PART("key", KEY, key), .kind = FLOATS, .rank = 4, .shape = {b, g, s->keys, s->head_dim}},
        {PART("value", VALUE, value), .kind = FLOATS, .rank = 4,
         .shape = {b, g, s->keys, s->value_head_dim}},
        {PART("query", QUERY, query), .kind = FLOATS, .rank = 4,
         .shape = {b, shown_heads, shown_rows, s->head_dim}},
        {PART("head_output", HEADS, head_output), .kind = FLOATS, .rank = 4,
         .shape = {b, shown_heads, shown_rows, s->value_head_dim}},
        {PART("concat", CONCAT, concat), .kind = FLOATS, .rank = 3,
         .shape = {b, t, h * s->value_head_dim}},
        {.name = "pool",
         .outputs = SRV_OUT_WEIGHTS | SRV_OUT_SCORES,
         .offset = offsetof(struct attn_outputs, pool.sums),
         .kind = SUMS,
         .left_out = out->pool.rows == 0,
         .rank = 1},
    }};
}

/* The part's buffer.  memcpy reads its pointer, whatever type it points to: all pointers to objects
 * have one representation on the machines that attnd runs on. */
static void *buffer_of(const struct attn_outputs *outputs, const struct part *part)
{
    void *buffer;
    memcpy(&buffer, (const char *)outputs + part->offset, sizeof buffer);
    return buffer;
}

/* ---- Allocating ---- */

enum srv_error_code srv_reply_reserve(struct srv_request *request, size_t items,
                                      struct srv_error *error)
{
    size_t max_bytes = request->limits->max_reply_bytes;
    request->reply_bytes = items * ITEM_TEXT; /* items are bounded by max_sequences */
    request->reply_bytes += request->v2_outputs != NULL ? SRV_V2_REPLY_TEXT : 0;
    if (request->binary)
        request->reply_bytes += SRV_BINARY_ALIGNMENT - 1;
    if (request->reply_bytes <= max_bytes)
        return SRV_OK;
    return srv_fail(error, SRV_E_REPLY_TOO_LARGE, items > 1 ? "sequences" : NULL,
                    "a reply of %zu items could pass max_reply_bytes %zu", items, max_bytes);
}

#define COUNT_MAX (SIZE_MAX / 4096) /* stands for any larger count: the text's size fits size_t */

static size_t count_elements(const struct part *part)
{
    size_t count = 1;
    for (unsigned i = 0; i < part->rank; i++)
        if (__builtin_mul_overflow(count, part->shape[i], &count))
            return COUNT_MAX;
    return count < COUNT_MAX ? count : COUNT_MAX;
}

/* The most bytes that a part takes in the reply. */
static size_t bound_reply_bytes(const struct attn_outputs *out, const struct part *part,
                                size_t count, bool binary)
{
    if (part->kind == STATS)
        return count * srv_head_stats_text(out);
    if (element_kinds[part->kind].type == NULL)
        return 0;
    if (!binary)
        return count * NUMBER_TEXT;
    return SRV_TENSOR_DESCRIPTION_MAX + SRV_BINARY_ELEMENT_BYTES +
           count * element_kinds[part->kind].binary +
           (part->kind == BYTES ? srv_output_maps(part->shape, part->rank) * RANGE_TEXT : 0);
}

static bool is_binary(const struct part *part, const struct srv_request *request)
{
    return request->v2_outputs != NULL ? srv_v2_output_is_binary(request->v2_outputs, part->name)
                                       : request->binary;
}

/* Fails where a map cannot have the datatype that the call gives. */
static enum srv_error_code check_datatype(const struct part *part, bool binary,
                                          struct srv_error *error)
{
    const char *type = element_kinds[part->kind].type;
    if (part->kind == BYTES && part->offset == offsetof(struct attn_outputs, attention_scores))
        return srv_fail(error, SRV_E_UNSUPPORTED, "map_datatype",
                        "attention_scores, which may be minus infinity, cannot be UINT8: use FP16");
    if (!binary && (part->kind == HALVES || part->kind == BYTES))
        return srv_fail(error, SRV_E_INVALID_VALUE, "map_datatype",
                        "map_datatype %s needs a reply in binary form (binary_output)", type);
    return SRV_OK;
}

/* Takes memory for the parts, and charges what they become in the reply. */
static enum srv_error_code alloc_parts(struct attn_outputs *out, const struct srv_rows *rows,
                                       const struct srv_sizes *sizes, struct srv_request *request,
                                       struct srv_error *error)
{
    struct parts parts = list_parts(out, rows, sizes);
    const size_t max_bytes = request->limits->max_reply_bytes;
    size_t total = request->reply_bytes;
    for (struct part *part = parts.list; part < parts.list + SRV_OUTPUT_TENSORS; part++) {
        if ((part->outputs & rows->outputs) == 0 || part->left_out)
            continue;
        if (part->kind == SUMS) /* the last part: its size follows from the buffers before it */
            part->shape[0] = sums_of(out, sizes);
        const size_t count = count_elements(part);
        const size_t bytes = bound_reply_bytes(out, part, count, is_binary(part, request));
        void *buffer = NULL;
        if (check_datatype(part, is_binary(part, request), error) != SRV_OK)
            return error->code;
        if (bytes > max_bytes - total)
            return srv_fail(error, SRV_E_REPLY_TOO_LARGE, part->name,
                            "a reply with %s could pass max_reply_bytes %zu", part->name,
                            max_bytes);
        total += bytes;
        if (srv_request_charge(request, bytes))
            buffer = srv_arena_alloc(&request->arena, count, element_kinds[part->kind].element);
        memcpy((char *)out + part->offset, &buffer, sizeof buffer);
        if (buffer == NULL)
            return srv_fail(error, SRV_E_OUT_OF_MEMORY, part->name,
                            "no memory for %zu numbers of %s beside the requests in flight", count,
                            part->name);
    }
    request->reply_bytes = total;
    return SRV_OK;
}

enum srv_error_code srv_outputs_alloc(struct attn_outputs *out, const struct srv_rows *rows,
                                      const struct srv_sizes *sizes, struct srv_request *request,
                                      struct srv_error *error)
{
    struct attn_selection *selection = &out->selection;
    size_t top_k = (size_t)rows->top_k;
    *out = (struct attn_outputs){
        .stage = rows->stage,
        .top_k = top_k < sizes->columns ? top_k : sizes->columns,
        .local_radius = (size_t)rows->local_radius,
    };
    if (srv_pool_read(&out->pool, rows, error) != SRV_OK ||
        srv_selection_read(&selection->heads, &selection->num_heads, &rows->heads, "heads",
                           sizes->num_heads, &request->arena, error) != SRV_OK ||
        srv_selection_read(&selection->rows, &selection->num_rows, &rows->query_rows, "rows",
                           sizes->queries, &request->arena, error) != SRV_OK ||
        srv_head_stats_read(out, rows, sizes, &request->arena, error) != SRV_OK)
        return error->code;
    return alloc_parts(out, rows, sizes, request, error);
}

/* ---- Writing ---- */

/* The number of leading dimensions, all 1, that the reply leaves out. */
static unsigned count_skipped(const struct part *part, const struct srv_sizes *sizes)
{
    bool has_rows = part->offset == offsetof(struct attn_outputs, output) ||
                    part->offset == offsetof(struct attn_outputs, concat);
    if (sizes->one_row && sizes->hidden_size > 0 && has_rows)
        return 2;
    return sizes->batched ? 0 : 1;
}

size_t srv_outputs_list(struct srv_output_tensor list[SRV_OUTPUT_TENSORS],
                        const struct attn_outputs *outputs, const struct srv_sizes *sizes)
{
    const struct parts parts = list_parts(outputs, NULL, sizes);
    size_t count = 0;
    for (const struct part *part = parts.list; part < parts.list + SRV_OUTPUT_TENSORS; part++) {
        const size_t bytes = element_kinds[part->kind].binary;
        const void *data = buffer_of(outputs, part);
        size_t at = count;
        if (data == NULL || bytes == 0)
            continue;
        const unsigned skip = count_skipped(part, sizes);
        for (; at > 0 && list[at - 1].element_bytes < bytes; at--)
            list[at] = list[at - 1];
        list[at] = (struct srv_output_tensor){.output = part->name,
                                              .before = part->before,
                                              .after = part->after,
                                              .is_index = part->kind == INDICES,
                                              .datatype = element_kinds[part->kind].type,
                                              .element_bytes = bytes,
                                              .narrow = element_kinds[part->kind].narrow,
                                              .data = data,
                                              .count = count_elements(part),
                                              .rank = part->rank - skip};
        memcpy(list[at].shape, part->shape + skip, list[at].rank * sizeof list[at].shape[0]);
        count++;
    }
    return count;
}

void srv_outputs_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                       const struct srv_sizes *sizes, bool binary)
{
    struct srv_output_tensor list[SRV_OUTPUT_TENSORS];
    const size_t count = srv_outputs_list(list, outputs, sizes);
    for (const struct srv_output_tensor *tensor = list; tensor < list + count; tensor++) {
        srv_buffer_text(out, tensor->before);
        if (tensor->datatype == NULL) {
            srv_head_stats_write(out, outputs, sizes);
        } else if (binary) {
            srv_tensor_describe(out, tensor->datatype, tensor->element_bytes, tensor->shape,
                                tensor->rank);
            srv_output_write_ranges(out, tensor, false);
            srv_buffer_text(out, "}");
        } else {
            srv_output_write_json(out, tensor, tensor->shape, tensor->rank);
        }
        srv_buffer_text(out, tensor->after);
    }
}

void srv_outputs_write_bytes(struct srv_buffer *out, const struct attn_outputs *outputs,
                             const struct srv_sizes *sizes)
{
    struct srv_output_tensor list[SRV_OUTPUT_TENSORS];
    size_t count = srv_outputs_list(list, outputs, sizes);
    for (size_t i = 0; i < count; i++)
        if (list[i].datatype != NULL)
            srv_output_write_bytes(out, &list[i]);
}
