/* shapes.c: the tables of shapes and dtypes, and what a shape costs at least. */
#include "shapes.h"

#include <string.h>

static const struct bench_layer bert = {
    .name = "BERT-base",
    .hidden = 768,
    .heads = 12,
    .kv_heads = 12,
    .head_dim = 64,
    .bias = true,
};
static const struct bench_layer gpt2 = {
    .name = "GPT-2",
    .hidden = 768,
    .heads = 12,
    .kv_heads = 12,
    .head_dim = 64,
    .bias = true,
    .causal = true,
};
static const struct bench_layer llama = {
    .name = "Llama 3 8B",
    .hidden = 4096,
    .heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .rope_theta = 500000,
    .causal = true,
};

static const struct bench_layer given = {
    .name = "weightless 32/8 x 128",
    .heads = 32,
    .kv_heads = 8,
    .head_dim = 128,
    .causal = true,
};

static const struct bench_layer deepseek = {
    .name = "DeepSeek V3",
    .hidden = 7168,
    .heads = 128,
    .kv_heads = 128,
    .head_dim = 128,
    .rope_theta = 10000,
    .causal = true,
    .q_rank = 1536,
    .kv_rank = 512,
    .nope = 128,
    .rope = 64,
};
static const struct bench_layer narrow = {
    .name = "8/2 heads of 64",
    .hidden = 512,
    .heads = 8,
    .kv_heads = 2,
    .head_dim = 64,
    .rope_theta = 10000,
    .causal = true,
};

#define SHAPE(name_, kind_, layer_, batch_, tokens_) \
    .name = name_, .kind = BENCH_##kind_, .layer = &(layer_), .batch = batch_, .tokens = tokens_

const struct bench_shape bench_shapes[] = {
    {SHAPE("A128b1", ATTEND, bert, 1, 128)},
    {SHAPE("A512b1", ATTEND, bert, 1, 512)},
    {SHAPE("A128b8", ATTEND, bert, 8, 128)},
    {SHAPE("A512b8", ATTEND, bert, 8, 512)},
    {SHAPE("B1024", ATTEND, gpt2, 1, 1024)},
    {SHAPE("C512", ATTEND, llama, 1, 512)},
    {SHAPE("C2048", ATTEND, llama, 1, 2048)},
    {SHAPE("D1k_b1", DECODE, llama, 1, 1024)},
    {SHAPE("D4k_b1", DECODE, llama, 1, 4096)},
    {SHAPE("D16k_b1", DECODE, llama, 1, 16384)},
    {SHAPE("D1k_b8", DECODE, llama, 8, 1024)},
    {SHAPE("D4k_b8", DECODE, llama, 8, 4096)},
    {SHAPE("D16k_b8", DECODE, llama, 8, 16384)},
    {SHAPE("D1k_b32", DECODE, llama, 32, 1024)},
    {SHAPE("D4k_b32", DECODE, llama, 32, 4096)},
    {SHAPE("D16k_b32", DECODE, llama, 32, 16384)},
    {SHAPE("M4k_b1", DECODE, deepseek, 1, 4096)},
    {SHAPE("M4k_b8", DECODE, deepseek, 8, 4096)},
    {SHAPE("E_b1", DECODE, gpt2, 1, 1024)},
    {SHAPE("E_b8", DECODE, gpt2, 8, 1024)},
    {SHAPE("E_b32", DECODE, gpt2, 32, 1024)},
    {SHAPE("W4k_b1", DECODE, given, 1, 4096)},
    {SHAPE("W4k_b8", DECODE, given, 8, 4096)},
    {SHAPE("W4k_b32", DECODE, given, 32, 4096)},
    {SHAPE("F2048", CORE, llama, 1, 2048), .growth_mib = 64},
    {SHAPE("F4096", CORE, llama, 1, 4096), .growth_mib = 64},
    {SHAPE("F8192", CORE, llama, 1, 8192), .growth_mib = 64},
    {SHAPE("F65536", CORE, llama, 1, 65536), .growth_mib = 256, .on_request = true},
    {SHAPE("N512", ATTEND, narrow, 1, 64), .on_request = true}, /* for their errors (NUMERICS) */
    {SHAPE("N768", ATTEND, gpt2, 1, 64), .on_request = true},
    {SHAPE("N4096", ATTEND, llama, 1, 64), .on_request = true},
};
const size_t bench_num_shapes = sizeof bench_shapes / sizeof bench_shapes[0];

const struct bench_shape bench_slope_shape = {
    .name = "slope", .kind = BENCH_DECODE, .layer = &llama, .batch = 1, .tokens = 131072};

#define DTYPE(name_, dtype_, bytes) \
    .name = name_, .dtype = dtype_, .kv_dtype = dtype_, .weight_bytes = bytes, .kv_bytes = bytes

const struct bench_dtype bench_dtypes[] = {
    {DTYPE("f32", ATTN_F32, 4), .peak = BENCH_FP32, .tolerance = 1e-5},
    {DTYPE("bf16", ATTN_BF16, 2), .peak = BENCH_BF16, .tolerance = 2e-2},
    {DTYPE("int8", ATTN_INT8, 1), .peak = BENCH_INT8, .tolerance = 5e-2},
    {.name = "w8a16",
     .dtype = ATTN_W8A16,
     .kv_dtype = ATTN_INT8,
     .weight_bytes = 1,
     .kv_bytes = 1,
     .peak = BENCH_INT8,
     .tolerance = 3e-2},
};
const size_t bench_num_dtypes = sizeof bench_dtypes / sizeof bench_dtypes[0];

const struct bench_dtype *bench_dtype_find(const char *name)
{
    for (size_t i = 0; i < bench_num_dtypes; i++)
        if (strcmp(bench_dtypes[i].name, name) == 0)
            return &bench_dtypes[i];
    return NULL;
}

bool bench_shape_matches(const struct bench_shape *shape, const char *name)
{
    if (strcmp(shape->name, name) == 0)
        return true;
    for (size_t i = 0; i < bench_num_shapes; i++)
        if (strcmp(bench_shapes[i].name, name) == 0)
            return false;
    return !shape->on_request && strncmp(shape->name, name, strlen(name)) == 0;
}

/* ---- Costs --------------------------------------------------------------------------------- */

size_t bench_row_width(const struct bench_layer *l)
{
    return l->hidden > 0 ? l->hidden : l->heads * l->head_dim;
}

/* Numbers of a latent layer's matrices, each once: hidden states to latents and the shared part,
 * the latent of queries to queries, the latent to and from heads, and back. */
static double latent_weights(const struct bench_layer *l)
{
    double inputs = (double)l->hidden * (double)(l->q_rank + l->kv_rank + l->rope);
    double heads = (double)l->q_rank * (double)(l->nope + l->rope) +
                   (double)l->kv_rank * (double)(l->nope + l->head_dim) +
                   (double)(l->head_dim * l->hidden);
    return inputs + (double)l->heads * heads;
}

double bench_weights(const struct bench_layer *l)
{
    if (l->kv_rank > 0)
        return latent_weights(l);
    return 2.0 * (double)l->hidden * (double)((l->heads + l->kv_heads) * l->head_dim);
}

size_t bench_cached_width(const struct bench_layer *l)
{
    return l->kv_rank > 0 ? l->kv_rank + l->rope : 2 * l->kv_heads * l->head_dim;
}

/* Pairs of a query and a visible key, in one sequence. */
static double pairs(const struct bench_shape *shape)
{
    double n = (double)shape->tokens;
    if (shape->kind == BENCH_DECODE)
        return n + 1;
    return shape->layer->causal ? n * (n + 1) / 2 : n * n;
}

double bench_flops(const struct bench_shape *shape)
{
    const struct bench_layer *l = shape->layer;
    double batch = (double)shape->batch;
    double rows = shape->kind == BENCH_DECODE ? batch : batch * (double)shape->tokens;
    double width = l->kv_rank > 0 ? 4.0 * (double)l->kv_rank + 2.0 * (double)l->rope
                                  : 4.0 * (double)l->head_dim; /* of a key and a value, doubled */
    double attention = width * (double)l->heads * pairs(shape) * batch;
    return shape->kind == BENCH_CORE ? attention : attention + 2 * bench_weights(l) * rows;
}

/* Bytes of each weight, cached number, input and output, once. */
double bench_bytes(const struct bench_shape *shape, const struct bench_dtype *dtype)
{
    const struct bench_layer *l = shape->layer;
    double batch = (double)shape->batch, tokens = (double)shape->tokens;
    double row = 2.0 * 4 * (double)bench_row_width(l); /* float32 in and out */
    double kv = (double)bench_cached_width(l);
    if (l->hidden == 0)
        row += 4 * kv; /* key and value are given too */
    double weights = bench_weights(l) * dtype->weight_bytes;
    if (shape->kind == BENCH_CORE)
        return batch * tokens * (2.0 * 4 * (double)(l->heads * l->head_dim) + 4 * kv);
    if (shape->kind == BENCH_ATTEND)
        return weights + batch * tokens * row;
    return weights + batch * ((tokens + 1) * kv * dtype->kv_bytes + row);
}
