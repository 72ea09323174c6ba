/* outputs.c: from the names of outputs to buffers, and from buffers to text or bytes.
 *
 * A part is one buffer of struct attn_outputs.  list_parts is the table of parts: their shapes
 * under the call's selection, and the text around them in a reply.  Allocating and writing both go
 * by that table, so that a request is charged for exactly the outputs that are written. */
#include "wire/outputs.h"

#include <string.h>

#include "base/number.h"
#include "wire/head_stats.h"
#include "wire/tensor_binary.h"
#include "wire/tensor_json.h"
#include "wire/v2_request.h"

/* ---- The table ---- */

enum element_kind {
    FLOATS,
    INDICES, /* uint32_t */
    STATS,   /* struct attn_head_stats, an object each */
    GROUPS,  /* struct attn_group_stats, which the objects of STATS show */
    CHANGES, /* double, likewise */
    SCRATCH, /* floats that the library needs and no reply shows */
};

#define NUMBER_TEXT (SRV_NUMBER_MAX + 1) /* bytes that the writer reserves for a number */
#define ITEM_TEXT 600 /* bytes charged for an item of a reply without its outputs, or its error */

static const struct {
    size_t element;   /* bytes in memory */
    size_t text;      /* bytes charged for it in a reply's text; STATS: srv_head_stats_text */
    const char *type; /* datatype in binary form; NULL: always text, or nothing */
    bool unwritten;   /* not as a part of the reply */
} element_kinds[] = {
    [FLOATS] = {.element = sizeof(float), .text = NUMBER_TEXT, .type = "FP32"},
    [INDICES] = {.element = sizeof(uint32_t), .text = NUMBER_TEXT, .type = "UINT32"},
    [STATS] = {.element = sizeof(struct attn_head_stats)},
    [GROUPS] = {.element = sizeof(struct attn_group_stats), .unwritten = true},
    [CHANGES] = {.element = sizeof(double), .unwritten = true},
    [SCRATCH] = {.element = sizeof(float), .unwritten = true},
};

struct part {
    const char *name;           /* of the output that the part belongs to */
    const char *before, *after; /* text around the part in a reply */
    size_t offset;              /* of the part's pointer in struct attn_outputs */
    enum element_kind kind;
    bool included; /* the part is to be allocated; in a reply: to be written */
    unsigned rank;
    size_t shape[4]; /* [rank], B first */
};
#define PART_COUNT 12
_Static_assert(PART_COUNT <= SRV_OUTPUT_TENSORS, "a list has room for all parts");

struct parts {
    struct part list[PART_COUNT];
};

#define BUFFER(member) .offset = offsetof(struct attn_outputs, member)
#define OUTPUT(output) .name = output, .before = ",\"" output "\":", .after = ""
#define TOP_INDEX \
    .name = "attention_weights", .before = ",\"attention_weights\":{\"index\":", .after = ""
#define TOP_WEIGHT .name = "attention_weights", .before = ",\"weight\":", .after = "}"

/* The outputs that a call asks for, and in which form attention_weights are. */
struct requested {
    unsigned outputs; /* enum srv_output */
    bool average, top, ablate;
};

/* H' and T' are the selected heads and rows, W the columns of attention weights, K is top_k.
 * head_stats are computed for all heads; the reply shows those selected. */
static struct parts list_parts(const struct attn_outputs *out, const struct requested *requested,
                               const struct srv_sizes *s)
{
    size_t b = s->batch, t = s->queries, h = s->num_heads, g = s->num_kv_heads, k = out->top_k;
    size_t shown_heads = out->selection.heads != NULL ? out->selection.num_heads : h; /* H' */
    size_t shown_rows = out->selection.rows != NULL ? out->selection.num_rows : t;    /* T' */
    unsigned outputs = requested->outputs;
    bool weightless = s->hidden_size == 0, mean = requested->average;
    bool weights = (outputs & SRV_OUT_WEIGHTS) != 0, top = weights && requested->top;
    return (struct parts){{
        {OUTPUT("output"), BUFFER(output), .kind = FLOATS,
         .included = (outputs & SRV_OUT_OUTPUT) != 0, .rank = weightless ? 4 : 3,
         .shape = {b, weightless ? h : t, weightless ? t : s->hidden_size, s->value_head_dim}},
        {OUTPUT("attention_weights"), BUFFER(attention_weights), .kind = FLOATS,
         .included = weights && !mean && !top, .rank = 4,
         .shape = {b, shown_heads, shown_rows, s->columns}},
        {OUTPUT("attention_weights"), BUFFER(average_weights), .kind = top ? SCRATCH : FLOATS,
         .included = weights && mean, .rank = 3, .shape = {b, shown_rows, s->columns}},
        {TOP_INDEX, BUFFER(top_index), .kind = INDICES, .included = top, .rank = mean ? 3 : 4,
         .shape = {b, mean ? shown_rows : shown_heads, mean ? k : shown_rows, k}},
        {TOP_WEIGHT, BUFFER(top_weight), .kind = FLOATS, .included = top, .rank = mean ? 3 : 4,
         .shape = {b, mean ? shown_rows : shown_heads, mean ? k : shown_rows, k}},
        {OUTPUT("attention_scores"), BUFFER(attention_scores), .kind = FLOATS,
         .included = (outputs & SRV_OUT_SCORES) != 0, .rank = 4,
         .shape = {b, shown_heads, shown_rows, s->keys}},
        {OUTPUT("head_stats"), BUFFER(head_stats), .kind = STATS,
         .included = (outputs & SRV_OUT_STATS) != 0, .rank = 2, .shape = {b, h}},
        {OUTPUT("head_stats"), BUFFER(group_stats), .kind = GROUPS,
         .included = (outputs & SRV_OUT_STATS) != 0 && out->num_target_groups > 0, .rank = 3,
         .shape = {b, h, out->num_target_groups}},
        {OUTPUT("head_stats"), BUFFER(ablation), .kind = CHANGES,
         .included = (outputs & SRV_OUT_STATS) != 0 && requested->ablate, .rank = 2,
         .shape = {b, h}},
        {OUTPUT("lse"), BUFFER(lse), .kind = FLOATS, .included = (outputs & SRV_OUT_LSE) != 0,
         .rank = 3, .shape = {b, h, t}},
        {OUTPUT("key"), BUFFER(key), .kind = FLOATS, .included = (outputs & SRV_OUT_KEY) != 0,
         .rank = 4, .shape = {b, g, s->keys, s->head_dim}},
        {OUTPUT("value"), BUFFER(value), .kind = FLOATS, .included = (outputs & SRV_OUT_VALUE) != 0,
         .rank = 4, .shape = {b, g, s->keys, s->value_head_dim}},
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

/* ---- Selecting ---- */

static enum srv_error_code fail_index(struct srv_error *error, const char *param, size_t i,
                                      int64_t index, size_t limit)
{
    if (index >= 0 && (uint64_t)index < limit)
        return srv_fail(error, SRV_E_NUMBER_OUT_OF_RANGE, param, "%s[%zu] is %lld a second time",
                        param, i, (long long)index);
    return srv_fail(error, SRV_E_NUMBER_OUT_OF_RANGE, param,
                    "%s[%zu] is %lld, there are 0 to %zu in this call", param, i, (long long)index,
                    limit - 1);
}

/* A list of distinct indices below `limit`; *out stays NULL where the field was not given. */
static enum srv_error_code read_selection(const size_t **out, size_t *count,
                                          const struct srv_tensor *list, const char *param,
                                          size_t limit, struct srv_arena *arena,
                                          struct srv_error *error)
{
    if (!list->present)
        return SRV_OK;
    if (list->rank != 1)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, param,
                        "%s has %u dimensions, expected a list of indices", param, list->rank);
    if (list->count == 0)
        return srv_fail(error, SRV_E_INVALID_VALUE, param, "%s is empty", param);
    size_t *indices = srv_arena_alloc(arena, list->count, sizeof *indices);
    bool *seen = srv_arena_alloc(arena, limit, sizeof *seen);
    if (indices == NULL || seen == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, param, "no memory for %s", param);
    memset(seen, 0, limit * sizeof *seen);
    for (size_t i = 0; i < list->count; i++) {
        int64_t index = list->i64[i];
        if (index < 0 || (uint64_t)index >= limit || seen[index])
            return fail_index(error, param, i, index, limit);
        seen[index] = true;
        indices[i] = (size_t)index;
    }
    *out = indices;
    *count = list->count;
    return SRV_OK;
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
    if (binary && element_kinds[part->kind].type != NULL)
        return SRV_TENSOR_DESCRIPTION_MAX + count * SRV_BINARY_ELEMENT_BYTES;
    return count *
           (part->kind == STATS ? srv_head_stats_text(out) : element_kinds[part->kind].text);
}

static bool is_binary(const struct part *part, const struct srv_request *request)
{
    return request->v2_outputs != NULL ? srv_v2_output_is_binary(request->v2_outputs, part->name)
                                       : request->binary;
}

/* Takes memory for one part of `count` elements, and charges the `bytes` that it becomes in the
 * reply. */
static enum srv_error_code alloc_part(struct attn_outputs *out, const struct part *part,
                                      size_t count, size_t bytes, struct srv_request *request,
                                      struct srv_error *error)
{
    void *buffer = NULL;
    if (srv_request_charge(request, bytes))
        buffer = srv_arena_alloc(&request->arena, count, element_kinds[part->kind].element);
    memcpy((char *)out + part->offset, &buffer, sizeof buffer);
    if (buffer != NULL)
        return SRV_OK;
    return srv_fail(error, SRV_E_OUT_OF_MEMORY, part->name,
                    "no memory for %zu numbers of %s beside the requests in flight", count,
                    part->name);
}

static enum srv_error_code alloc_parts(struct attn_outputs *out, const struct requested *requested,
                                       const struct srv_sizes *sizes, struct srv_request *request,
                                       struct srv_error *error)
{
    const struct parts parts = list_parts(out, requested, sizes);
    size_t max_bytes = request->limits->max_reply_bytes;
    size_t total = request->reply_bytes;
    for (int i = 0; i < PART_COUNT; i++) {
        const struct part *part = &parts.list[i];
        if (!part->included)
            continue;
        size_t count = count_elements(part);
        size_t bytes = bound_reply_bytes(out, part, count, is_binary(part, request));
        if (bytes > max_bytes - total)
            return srv_fail(error, SRV_E_REPLY_TOO_LARGE, part->name,
                            "a reply with %s could pass max_reply_bytes %zu", part->name,
                            max_bytes);
        total += bytes;
        if (alloc_part(out, part, count, bytes, request, error) != SRV_OK)
            return error->code;
    }
    request->reply_bytes = total;
    return SRV_OK;
}

enum srv_error_code srv_outputs_alloc(struct attn_outputs *out, const struct srv_rows *rows,
                                      const struct srv_sizes *sizes, struct srv_request *request,
                                      struct srv_error *error)
{
    const struct requested requested = {.outputs = rows->outputs,
                                        .average = rows->average_heads,
                                        .top = rows->top_k > 0,
                                        .ablate = rows->ablate};
    struct attn_selection *selection = &out->selection;
    size_t top_k = (size_t)rows->top_k;
    *out = (struct attn_outputs){
        .stage = rows->stage,
        .top_k = top_k < sizes->columns ? top_k : sizes->columns,
        .local_radius = (size_t)rows->local_radius,
    };
    enum srv_error_code code =
        read_selection(&selection->heads, &selection->num_heads, &rows->heads, "heads",
                       sizes->num_heads, &request->arena, error);
    if (code == SRV_OK)
        code = read_selection(&selection->rows, &selection->num_rows, &rows->query_rows, "rows",
                              sizes->queries, &request->arena, error);
    if (code == SRV_OK)
        code = srv_head_stats_read(out, rows, sizes, &request->arena, error);
    return code == SRV_OK ? alloc_parts(out, &requested, sizes, request, error) : code;
}

/* ---- Writing ---- */

/* The parts of a reply, `included` being those that were allocated. */
static struct parts list_allocated(const struct attn_outputs *outputs,
                                   const struct srv_sizes *sizes)
{
    const struct requested all = {.outputs = ~0u,
                                  .average = outputs->average_weights != NULL,
                                  .top = outputs->top_index != NULL};
    struct parts parts = list_parts(outputs, &all, sizes);
    for (int i = 0; i < PART_COUNT; i++)
        parts.list[i].included = buffer_of(outputs, &parts.list[i]) != NULL &&
                                 !element_kinds[parts.list[i].kind].unwritten;
    return parts;
}

/* The number of leading dimensions, all 1, that the reply leaves out. */
static unsigned count_skipped(const struct part *part, const struct srv_sizes *sizes)
{
    if (sizes->one_row && part->offset == offsetof(struct attn_outputs, output))
        return 2;
    return sizes->batched ? 0 : 1;
}

static void write_part(struct srv_buffer *out, const struct part *part,
                       const struct attn_outputs *outputs, const struct srv_sizes *sizes,
                       bool binary)
{
    unsigned skip = count_skipped(part, sizes), rank = part->rank - skip;
    const size_t *shape = part->shape + skip;
    srv_buffer_text(out, part->before);
    if (part->kind == STATS)
        srv_head_stats_write(out, outputs, sizes);
    else if (binary)
        srv_tensor_describe(out, element_kinds[part->kind].type, shape, rank);
    else if (part->kind == FLOATS)
        srv_tensor_write_json(out, buffer_of(outputs, part), shape, rank);
    else
        srv_indices_write_json(out, buffer_of(outputs, part), shape, rank);
    srv_buffer_text(out, part->after);
}

void srv_outputs_write(struct srv_buffer *out, const struct attn_outputs *outputs,
                       const struct srv_sizes *sizes, bool binary)
{
    const struct parts parts = list_allocated(outputs, sizes);
    for (int i = 0; i < PART_COUNT; i++)
        if (parts.list[i].included)
            write_part(out, &parts.list[i], outputs, sizes, binary);
}

void srv_outputs_write_bytes(struct srv_buffer *out, const struct attn_outputs *outputs,
                             const struct srv_sizes *sizes)
{
    const struct parts parts = list_allocated(outputs, sizes);
    for (int i = 0; i < PART_COUNT; i++)
        if (parts.list[i].included && element_kinds[parts.list[i].kind].type != NULL)
            srv_tensor_write_binary(out, buffer_of(outputs, &parts.list[i]),
                                    count_elements(&parts.list[i]));
}

size_t srv_outputs_list(struct srv_output_tensor list[SRV_OUTPUT_TENSORS],
                        const struct attn_outputs *outputs, const struct srv_sizes *sizes)
{
    const struct parts parts = list_allocated(outputs, sizes);
    size_t count = 0;
    for (int i = 0; i < PART_COUNT; i++) {
        const struct part *part = &parts.list[i];
        if (!part->included || element_kinds[part->kind].type == NULL)
            continue;
        unsigned skip = count_skipped(part, sizes);
        struct srv_output_tensor *tensor = &list[count++];
        *tensor = (struct srv_output_tensor){.output = part->name,
                                             .is_index = part->kind == INDICES,
                                             .datatype = element_kinds[part->kind].type,
                                             .data = buffer_of(outputs, part),
                                             .count = count_elements(part),
                                             .rank = part->rank - skip};
        memcpy(tensor->shape, part->shape + skip, tensor->rank * sizeof tensor->shape[0]);
    }
    return count;
}
