/* bodies.h: bodies of /attend and /decode, read as the daemon reads them. */
#ifndef TESTS_FUZZ_BODIES_H
#define TESTS_FUZZ_BODIES_H

#include <math.h>

#include "fuzz.h"
#include "wire/call.h"
#include "wire/tensor.h"

#define BODY_MEMORY ((size_t)1 << 20)
#define WRITTEN_BYTES ((size_t)1 << 22)

/* Writes a tensor of numbers as JSON and reads it back: shape and bits must be the same. */
static inline void body_check_writing(const struct srv_tensor *t)
{
    struct srv_buffer out;
    struct srv_arena arena;
    struct srv_json json;
    struct srv_error error = {0};
    struct srv_tensor again = {0};
    srv_buffer_init(&out, WRITTEN_BYTES);
    srv_arena_init(&arena, BODY_MEMORY, NULL, NULL);
    srv_tensor_write_json(&out, t->f32, t->shape, t->rank);
    FUZZ_EXPECT(!out.failed);
    srv_json_init(&json, out.data, out.length, &error);
    FUZZ_EXPECT(srv_tensor_read_json(&again, &json, &arena, t->kind, true, "again"));
    FUZZ_EXPECT(srv_json_at_end(&json) && again.rank == t->rank && again.count == t->count);
    FUZZ_EXPECT(t->count == 0 || memcmp(again.f32, t->f32, t->count * sizeof(float)) == 0);
    out.length = 0;
    srv_tensor_describe(&out, "FP32", sizeof(float), t->shape, t->rank);
    srv_buffer_text(&out, "}");
    FUZZ_EXPECT(out.length <= SRV_TENSOR_DESCRIPTION_MAX);
    out.length = 0;
    const struct srv_output_tensor floats = {.element_bytes = 4, .data = t->f32, .count = t->count};
    srv_output_write_bytes(&out, &floats);
    if (t->rank > 0)
        srv_indices_write_json(&out, t->data, t->shape, t->rank);
    srv_arena_fini(&arena);
    srv_buffer_fini(&out);
}

/* Every element of a tensor that was read must be there, and be what its kind allows. */
static inline void body_check_tensor(const struct srv_tensor *t)
{
    size_t count = 1;
    volatile int64_t sum = 0; /* integers may be any: they are only read */
    if (!t->present)
        return;
    FUZZ_EXPECT(t->rank <= SRV_TENSOR_RANK);
    for (unsigned i = 0; i < t->rank; i++)
        count *= t->shape[i];
    FUZZ_EXPECT(count == t->count);
    for (size_t i = 0; i < t->count; i++) {
        if (t->kind == SRV_FLOATS)
            FUZZ_EXPECT(isfinite(t->f32[i]));
        else if (t->kind == SRV_FLOATS_OR_NULL)
            FUZZ_EXPECT(isfinite(t->f32[i]) || (isinf(t->f32[i]) && t->f32[i] < 0));
        else if (t->kind == SRV_BOOLS)
            FUZZ_EXPECT(t->u8[i] <= 1);
        else
            sum ^= t->i64[i];
    }
    if ((t->kind == SRV_FLOATS || t->kind == SRV_FLOATS_OR_NULL) && t->count <= 4096 &&
        t->count > 0)
        body_check_writing(t);
}

static inline void body_check_rows(const struct srv_rows *rows)
{
    const struct srv_tensor *const tensors[] = {&rows->hidden_states,
                                                &rows->encoder_hidden_states,
                                                &rows->key_hidden_states,
                                                &rows->value_hidden_states,
                                                &rows->query,
                                                &rows->key,
                                                &rows->value,
                                                &rows->query_offset,
                                                &rows->padding_mask,
                                                &rows->attention_mask,
                                                &rows->attention_bias,
                                                &rows->head_mask,
                                                &rows->position_ids,
                                                &rows->sliding_window,
                                                &rows->heads,
                                                &rows->query_rows,
                                                &rows->targets};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        body_check_tensor(tensors[i]);
    for (size_t i = 0; i < rows->target_groups.count; i++)
        body_check_tensor(&rows->target_groups.lists[i]);
    FUZZ_EXPECT(rows->session_id == NULL || srv_id_valid(rows->session_id));
}

/* Reads the body; the result must be whole, or an error with a code and a message. */
static inline void body_try(const struct srv_body *body, enum srv_call_kind kind)
{
    struct srv_call call = {0};
    struct srv_error error = {0};
    struct srv_arena arena;
    srv_arena_init(&arena, BODY_MEMORY, NULL, NULL);
    enum srv_error_code code = srv_call_read(&call, body, kind, 4, &arena, &error);
    FUZZ_EXPECT(code == error.code && code < SRV_ERROR_COUNT);
    FUZZ_EXPECT((code == SRV_OK) == (error.message[0] == '\0'));
    if (code == SRV_OK && call.sequences == NULL)
        body_check_rows(&call.rows);
    for (size_t i = 0; code == SRV_OK && i < call.num_sequences; i++)
        body_check_rows(&call.sequences[i]);
    srv_arena_fini(&arena);
}

#endif
