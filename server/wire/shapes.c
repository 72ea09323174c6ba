/* shapes.c: compares the shapes of tensors with those expected, and broadcasts masks.
 *
 * Each modifier of struct srv_rows has a function here that turns it into the library's form;
 * srv_modifiers_read calls them in turn. */
#include "wire/shapes.h"

#include <stdio.h>

struct srv_sizes srv_sizes_of_layer(const struct attn_layer_spec *spec)
{
    return (struct srv_sizes){
        .batch = 1,
        .num_heads = spec->num_heads,
        .num_kv_heads = spec->num_kv_heads,
        .head_dim = spec->head_dim,
        .value_head_dim = spec->value_head_dim,
        .hidden_size = spec->hidden_size,
    };
}

/* ---- Comparing ---- */

static void print_shape(char *out, size_t size, const size_t *shape, unsigned rank)
{
    size_t used = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < rank && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%zu", i ? "," : "", shape[i]);
}

enum srv_error_code srv_shape_check(const struct srv_tensor *tensor, const char *param,
                                    const size_t *shape, unsigned rank, struct srv_error *error)
{
    char got[96], want[96];
    bool same = tensor->rank == rank;
    for (unsigned i = 0; i < rank && same; i++)
        same = tensor->shape[i] == shape[i];
    if (same)
        return SRV_OK;
    print_shape(got, sizeof got, tensor->shape, tensor->rank);
    print_shape(want, sizeof want, shape, rank);
    return srv_fail(error, SRV_E_SHAPE_MISMATCH, param, "%s has shape [%s], expected [%s]", param,
                    got, want);
}

enum srv_error_code srv_shape_rows(size_t *batch, size_t *tokens, bool *batched,
                                   const struct srv_tensor *tensor, const char *param, size_t width,
                                   struct srv_error *error)
{
    unsigned rank = tensor->rank;
    if (rank < 2 || rank > 3)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, param,
                        "%s has %u dimensions, expected [tokens,%zu] or [batch,tokens,%zu]", param,
                        rank, width, width);
    *batched = rank == 3;
    *batch = *batched ? tensor->shape[0] : 1;
    *tokens = tensor->shape[rank - 2];
    if (*batch == 0 || *tokens == 0)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, param, "%s holds no rows", param);
    const size_t shape[] = {*batch, *tokens, width};
    return srv_shape_check(tensor, param, *batched ? shape : shape + 1, rank, error);
}

enum srv_error_code srv_shape_given_rows(struct srv_sizes *sizes, const struct srv_rows *rows,
                                         struct srv_error *error)
{
    const struct srv_tensor *q = &rows->query, *k = &rows->key, *v = &rows->value;
    const unsigned rank = q->rank, least = sizes->over_cache ? 2 : 3;
    if (rank < least || rank > 4 || k->rank != rank || v->rank != rank)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, "query",
                        "query, key and value need 3 dimensions [heads,tokens,width], or 4 with "
                        "the batch first%s; they have %u, %u and %u",
                        sizes->over_cache ? ", or 2 for one row" : "", q->rank, k->rank, v->rank);
    if (q->count == 0 || k->count == 0 || v->count == 0)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, "query", "query, key or value is empty");
    sizes->batched = rank == 4;
    sizes->one_row = rank == 2;
    sizes->batch = sizes->batched ? q->shape[0] : 1;
    sizes->queries = sizes->one_row ? 1 : q->shape[rank - 2];
    sizes->keys = sizes->columns = sizes->one_row ? 1 : k->shape[rank - 2];
    const unsigned first = sizes->batched ? 1 : 0; /* the dimension of heads */
    sizes->num_heads = q->shape[first];
    sizes->num_kv_heads = k->shape[first];
    sizes->head_dim = q->shape[rank - 1];
    sizes->value_head_dim = v->shape[rank - 1];
    const size_t b = sizes->batch, g = sizes->num_kv_heads, s = sizes->keys;
    const size_t key[] = {b, g, s, sizes->head_dim}, row[] = {g, sizes->head_dim};
    const size_t value[] = {b, g, s, sizes->value_head_dim}, one[] = {g, sizes->value_head_dim};
    if (sizes->num_heads % g != 0)
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, "key",
                        "%zu key heads do not divide %zu query heads", g, sizes->num_heads);
    unsigned skip = 1 - first;
    if (srv_shape_check(k, "key", sizes->one_row ? row : key + skip, rank, error) != SRV_OK)
        return error->code;
    return srv_shape_check(v, "value", sizes->one_row ? one : value + skip, rank, error);
}

/* Puts the rows of `past`, [B][G][P][width], before those of `tensor`, [B][G][N][width]. */
static enum srv_error_code join(struct srv_tensor *tensor, const struct srv_tensor *past,
                                const char *param, struct srv_arena *arena, struct srv_error *error)
{
    const unsigned rank = tensor->rank, at = rank - 2; /* the dimension of tokens */
    size_t shape[SRV_TENSOR_RANK];
    memcpy(shape, tensor->shape, sizeof shape);
    shape[at] = past->rank == rank ? past->shape[at] : shape[at];
    if (srv_shape_check(past, param, shape, rank, error) != SRV_OK)
        return error->code;
    const size_t old = past->shape[at] * shape[rank - 1], new = tensor->shape[at] * shape[rank - 1];
    const size_t pairs = tensor->count / new, count = past->count + tensor->count;
    float *joined = srv_arena_alloc(arena, count, sizeof *joined);
    if (joined == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, param, "no memory for %s", param);
    for (size_t i = 0; i < pairs; i++) {
        memcpy(joined + i * (old + new), past->f32 + i * old, old * sizeof *joined);
        memcpy(joined + i * (old + new) + old, tensor->f32 + i * new, new * sizeof *joined);
    }
    tensor->shape[at] += past->shape[at];
    tensor->count = count;
    tensor->f32 = joined;
    return SRV_OK;
}

enum srv_error_code srv_shape_join_past(struct srv_sizes *sizes, struct srv_rows *rows,
                                        struct srv_arena *arena, struct srv_error *error)
{
    const struct srv_tensor *key = &rows->past_key, *value = &rows->past_value;
    if (!key->present)
        return SRV_OK;
    if (join(&rows->key, key, "past_key", arena, error) != SRV_OK ||
        join(&rows->value, value, "past_value", arena, error) != SRV_OK)
        return error->code;
    sizes->keys = sizes->columns = rows->key.shape[rows->key.rank - 2];
    if (rows->value.shape[rows->value.rank - 2] == sizes->keys)
        return SRV_OK;
    return srv_fail(error, SRV_E_SHAPE_MISMATCH, "past_value",
                    "past_key and past_value hold different numbers of tokens");
}

static bool passes_scores(const struct srv_sizes *s, size_t max_scores)
{
    size_t scores;
    return __builtin_mul_overflow(s->queries, s->keys, &scores) ||
           __builtin_mul_overflow(scores, s->batch, &scores) ||
           __builtin_mul_overflow(scores, s->num_heads, &scores) || scores > max_scores;
}

enum srv_error_code srv_sizes_check(const struct srv_sizes *sizes, const struct srv_limits *limits,
                                    const char *queries, const char *keys, struct srv_error *error)
{
    if (sizes->batch > ATTN_MAX_BATCH)
        return srv_fail(error, SRV_E_TOO_MANY_TOKENS, queries,
                        "%s holds %zu sequences, at most %d are allowed", queries, sizes->batch,
                        ATTN_MAX_BATCH);
    if (sizes->queries > limits->max_tokens || (keys != NULL && sizes->keys > limits->max_tokens))
        return srv_fail(error, SRV_E_TOO_MANY_TOKENS,
                        sizes->queries > limits->max_tokens ? queries : keys,
                        "%zu query and %zu key tokens, max_tokens is %zu", sizes->queries,
                        sizes->keys, limits->max_tokens);
    if (passes_scores(sizes, limits->max_scores))
        return srv_fail(error, SRV_E_TOO_MANY_TOKENS, queries,
                        "%zu sequences x %zu heads x %zu query x %zu key tokens pass max_scores "
                        "%zu",
                        sizes->batch, sizes->num_heads, sizes->queries, sizes->keys,
                        limits->max_scores);
    return SRV_OK;
}

/* ---- Broadcasting ---- */

/* Where a mask that broadcasts stands: the elements from one sequence and from one head to the
 * next, 0 where all have the same. */
struct plane {
    size_t batch, head;
    bool one_row; /* [1][S], the same for all queries */
};

/* Refuses, with the two ways to say it, what two frameworks read differently: rows [n][S] of a
 * boolean mask where n is both B, as Hugging Face's padding has it, and T; planes [n][T][S] where n
 * is both B and H. */
static enum srv_error_code check_ambiguous(const struct srv_tensor *tensor, const char *param,
                                           const struct srv_sizes *sizes, struct srv_error *error)
{
    const size_t n = tensor->shape[0];
    char shape[96];
    const char *remedies = NULL;
    if (tensor->rank == 2 && tensor->kind == SRV_BOOLS && n == sizes->queries)
        remedies = "send real tokens [B,S] as padding_mask, or a mask of queries and keys as "
                   "[1,1,T,S]";
    else if (tensor->rank == 3 && n == sizes->num_heads)
        remedies = "send it as [B,1,T,S] or as [1,H,T,S]";
    if (n <= 1 || n != sizes->batch || remedies == NULL)
        return SRV_OK;
    print_shape(shape, sizeof shape, tensor->shape, tensor->rank);
    return srv_fail(error, SRV_E_SHAPE_MISMATCH, param, "%s of shape [%s] is ambiguous here: %s",
                    param, shape, remedies);
}

/* A mask of 2 to 4 dimensions, aligned at the last to [B][H][T][S]; each but the last may be 1.  Of
 * three the first counts as B where it fits, else as H.  Without a mask *out is all zeros. */
static enum srv_error_code read_plane(struct plane *out, const struct srv_tensor *tensor,
                                      const char *param, const struct srv_sizes *sizes,
                                      struct srv_error *error)
{
    *out = (struct plane){.batch = 0};
    if (!tensor->present)
        return SRV_OK;
    const size_t whole[4] = {sizes->batch, sizes->num_heads, sizes->queries, sizes->keys};
    size_t shape[4] = {1, 1, 1, 1};
    unsigned rank = tensor->rank;
    bool fits = rank >= 2;
    for (unsigned i = 0; i < rank; i++)
        shape[4 - rank + i] = tensor->shape[i];
    if (rank == 3 && shape[1] == sizes->batch) {
        shape[0] = shape[1];
        shape[1] = 1;
    }
    for (unsigned i = 0; i < 4; i++)
        fits = fits && (shape[i] == whole[i] || (shape[i] == 1 && i < 3));
    if (!fits) {
        const bool padding = tensor->kind == SRV_BOOLS && rank <= 2;
        char got[96], want[96];
        print_shape(got, sizeof got, tensor->shape, rank);
        print_shape(want, sizeof want, whole, 4);
        return srv_fail(error, SRV_E_SHAPE_MISMATCH, param,
                        "%s has shape [%s], which does not broadcast to [%s]: batch, heads, query "
                        "tokens, key tokens%s",
                        param, got, want, padding ? "; real tokens [B,S] are padding_mask" : "");
    }
    size_t plane = shape[2] * shape[3];
    *out = (struct plane){.batch = shape[0] == 1 ? 0 : shape[1] * plane,
                          .head = shape[1] == 1 ? 0 : plane,
                          .one_row = shape[2] == 1};
    return check_ambiguous(tensor, param, sizes, error);
}

/* ---- Modifiers ---- */

enum srv_error_code srv_per_sequence_read(const void **out, const struct srv_tensor *tensor,
                                          const char *param, size_t batch, size_t n,
                                          struct srv_arena *arena, struct srv_error *error)
{
    *out = tensor->data;
    if (!tensor->present)
        return SRV_OK;
    const size_t shape[] = {batch, n};
    const bool list = n != SRV_NO_LIST, whole = list ? tensor->rank == 2 : tensor->rank != 0;
    const size_t bytes = (list ? n : 1) * srv_tensor_element_bytes(tensor->kind);
    enum srv_error_code code =
        srv_shape_check(tensor, param, whole ? shape : shape + 1, (unsigned)whole + list, error);
    if (code != SRV_OK || whole || batch == 1)
        return code;
    char *copies = srv_arena_alloc(arena, batch, bytes);
    if (copies == NULL)
        return srv_fail(error, SRV_E_OUT_OF_MEMORY, param, "no memory for %s", param);
    for (size_t b = 0; b < batch; b++)
        memcpy(copies + b * bytes, tensor->data, bytes);
    *out = copies;
    return SRV_OK;
}

/* The window is a number W, the key itself and the W - 1 before it, or [left, right], where -1
 * means open. */
static enum srv_error_code read_window(struct attn_modifiers *out, const struct srv_tensor *window,
                                       struct srv_error *error)
{
    const size_t pair = 2;
    out->has_window = window->present;
    if (!window->present)
        return SRV_OK;
    if (window->rank != 0) {
        out->window_left = window->count == 2 ? window->i64[0] : 0;
        out->window_right = window->count == 2 ? window->i64[1] : 0;
        return srv_shape_check(window, "sliding_window", &pair, 1, error);
    }
    if (window->i64[0] < 1)
        return srv_fail(error, SRV_E_NUMBER_OUT_OF_RANGE, "sliding_window",
                        "sliding_window is %lld, must be at least 1", (long long)window->i64[0]);
    out->window_left = window->i64[0] - 1;
    return SRV_OK;
}

static enum srv_error_code read_grid(struct attn_modifiers *out, const struct srv_tensor *grid,
                                     struct srv_error *error)
{
    const size_t pair = 2;
    if (!grid->present || srv_shape_check(grid, "grid", &pair, 1, error) != SRV_OK)
        return error->code;
    for (size_t i = 0; i < pair; i++) {
        if (grid->i64[i] < 1 || grid->i64[i] > ATTN_MAX_TOKENS)
            return srv_fail(error, SRV_E_NUMBER_OUT_OF_RANGE, "grid",
                            "grid[%zu] is %lld, allowed are 1 to %d", i, (long long)grid->i64[i],
                            ATTN_MAX_TOKENS);
        out->grid[i] = (size_t)grid->i64[i];
    }
    return SRV_OK;
}

enum srv_error_code srv_modifiers_read(struct attn_modifiers *out, const struct srv_rows *rows,
                                       const struct srv_sizes *sizes, struct srv_arena *arena,
                                       struct srv_error *error)
{
    const struct srv_tensor *given_mask = &rows->attention_mask, *heads = &rows->head_mask;
    /* Over cached tokens, a mask as wide as the new rows is a tree's: between those rows only. */
    const bool tree = given_mask->present && sizes->over_cache && sizes->keys != sizes->queries &&
                      given_mask->rank >= 2 &&
                      given_mask->shape[given_mask->rank - 1] == sizes->queries;
    struct srv_sizes masked = *sizes;
    struct plane mask, bias;
    const void *padding_mask, *position_ids, *query_offset;
    masked.keys = tree ? sizes->queries : sizes->keys;
    *out = (struct attn_modifiers){.scale = rows->has_scale ? rows->scale : 0};
    if (read_plane(&mask, given_mask, "attention_mask", &masked, error) != SRV_OK ||
        read_plane(&bias, &rows->attention_bias, "attention_bias", sizes, error) != SRV_OK ||
        srv_per_sequence_read(&padding_mask, &rows->padding_mask, "padding_mask", sizes->batch,
                              sizes->keys, arena, error) != SRV_OK ||
        srv_per_sequence_read(&position_ids, &rows->position_ids, "position_ids", sizes->batch,
                              sizes->queries, arena, error) != SRV_OK ||
        read_window(out, &rows->sliding_window, error) != SRV_OK ||
        read_grid(out, &rows->grid, error) != SRV_OK ||
        srv_per_sequence_read(&query_offset, &rows->query_offset, "query_offset", sizes->batch,
                              SRV_NO_LIST, arena, error) != SRV_OK)
        return error->code;
    if (rows->has_is_causal)
        out->is_causal = rows->is_causal ? ATTN_CAUSAL_YES : ATTN_CAUSAL_NO;
    out->has_softcap = rows->has_softcap;
    out->softcap = rows->softcap;
    out->head_mask = heads->f32;
    out->tree = tree;
    out->attention_mask = given_mask->u8;
    out->attention_mask_batch_stride = mask.batch;
    out->attention_mask_head_stride = mask.head;
    out->attention_mask_one_row = mask.one_row;
    out->attention_bias = rows->attention_bias.f32;
    out->attention_bias_batch_stride = bias.batch;
    out->attention_bias_head_stride = bias.head;
    out->attention_bias_one_row = bias.one_row;
    out->padding_mask = padding_mask;
    out->position_ids = position_ids;
    out->query_offset = query_offset;
    return heads->present ? srv_shape_check(heads, "head_mask", &sizes->num_heads, 1, error)
                          : SRV_OK;
}
