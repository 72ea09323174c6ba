/* shapes.c: the tables of shapes and dtypes, and what a shape costs at least. */
#include "shapes.h"

#include <string.h>

static const struct bench_layer bert = {"BERT-base", 768, 12, 12, 64, 0, true, false};
static const struct bench_layer gpt2 = {"GPT-2", 768, 12, 12, 64, 0, true, true};
static const struct bench_layer llama = {"Llama 3 8B", 4096, 32, 8, 128, 500000, false, true};

#define ORT "ONNX Runtime"
#define GGML "llama.cpp"

const struct bench_shape bench_shapes[] = {
    {"A128b1", BENCH_ATTEND, &bert, 1, 128, ORT, 1.57, 1.25, 0, false},
    {"A512b1", BENCH_ATTEND, &bert, 1, 512, ORT, 8.1, 6.1, 0, false},
    {"A128b8", BENCH_ATTEND, &bert, 8, 128, ORT, 12.8, 10, 0, false},
    {"A512b8", BENCH_ATTEND, &bert, 8, 512, ORT, 67, 49, 0, false},
    {"B1024", BENCH_ATTEND, &gpt2, 1, 1024, ORT, 19.9, 12.3, 0, false},
    {"C512", BENCH_ATTEND, &llama, 1, 512, ORT, 107, 86, 0, false},
    {"C2048", BENCH_ATTEND, &llama, 1, 2048, ORT, 528, 394, 0, false},
    {"D1k_b1", BENCH_DECODE, &llama, 1, 1024, GGML, 2.55, 2.36, 0, false},
    {"D4k_b1", BENCH_DECODE, &llama, 1, 4096, GGML, 5.0, 2.7, 0, false},
    {"D16k_b1", BENCH_DECODE, &llama, 1, 16384, GGML, 10.3, 4.0, 0, false},
    {"D1k_b8", BENCH_DECODE, &llama, 8, 1024, GGML, 8.2, 3.1, 0, false},
    {"D4k_b8", BENCH_DECODE, &llama, 8, 4096, ORT, 24.5, 5.8, 0, false},
    {"D16k_b8", BENCH_DECODE, &llama, 8, 16384, GGML, 60, 16.5, 0, false},
    {"D1k_b32", BENCH_DECODE, &llama, 32, 1024, GGML, 24, 5.8, 0, false},
    {"D4k_b32", BENCH_DECODE, &llama, 32, 4096, GGML, 57, 16.5, 0, false},
    {"D16k_b32", BENCH_DECODE, &llama, 32, 16384, NULL, 0, 0, 0, false},
    {"E_b1", BENCH_DECODE, &gpt2, 1, 1024, GGML, 0.138, 0.06, 0, false},
    {"E_b8", BENCH_DECODE, &gpt2, 8, 1024, ORT, 1.45, 0.79, 0, false},
    {"E_b32", BENCH_DECODE, &gpt2, 32, 1024, ORT, 6.1, 2.8, 0, false},
    {"F2048", BENCH_CORE, &llama, 1, 2048, ORT, 139, 66, 64, false},
    {"F4096", BENCH_CORE, &llama, 1, 4096, NULL, 0, 0, 64, false},
    {"F8192", BENCH_CORE, &llama, 1, 8192, ORT, 2124, 1050, 64, false},
    {"F65536", BENCH_CORE, &llama, 1, 65536, NULL, 0, 0, 256, true},
};
const size_t bench_num_shapes = sizeof bench_shapes / sizeof bench_shapes[0];

const struct bench_shape bench_slope_shape = {
    .name = "slope", .kind = BENCH_DECODE, .layer = &llama, .batch = 1, .tokens = 131072};

const struct bench_dtype bench_dtypes[] = {
    {"f32", ATTN_F32, 4, 4, BENCH_FP32, 1e-5},
    {"bf16", ATTN_BF16, 2, 2, BENCH_BF16, 2e-2},
    {"int8", ATTN_INT8, 1, 1, BENCH_INT8, 5e-2},
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

double bench_weights(const struct bench_layer *l)
{
    return 2.0 * (double)l->hidden * (double)((l->heads + l->kv_heads) * l->head_dim);
}

/* Pairs of a query and a key that it sees, in one sequence. */
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
    double attention = 4.0 * (double)(l->heads * l->head_dim) * pairs(shape) * batch;
    return shape->kind == BENCH_CORE ? attention : attention + 2 * bench_weights(l) * rows;
}

/* Each weight, cached number, input and output once. */
double bench_bytes(const struct bench_shape *shape, const struct bench_dtype *dtype)
{
    const struct bench_layer *l = shape->layer;
    double batch = (double)shape->batch, tokens = (double)shape->tokens;
    double row = 2.0 * 4 * (double)l->hidden; /* float32 in and out */
    double kv = 2.0 * (double)(l->kv_heads * l->head_dim);
    double weights = bench_weights(l) * dtype->weight_bytes;
    if (shape->kind == BENCH_CORE)
        return batch * tokens * (2.0 * 4 * (double)(l->heads * l->head_dim) + 4 * kv);
    if (shape->kind == BENCH_ATTEND)
        return weights + batch * tokens * row;
    return weights + batch * ((tokens + 1) * kv * dtype->kv_bytes + row);
}
