/* bench.c: the speed of each kernel.  GFLOP/s counts a multiply-add as two operations; GB/s counts
 * the bytes of the large operand once, which for project of one row is the traffic with memory.
 * all_within over an array larger than any cache shows what reading alone can do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "kernelcheck.h"

#define RUNS 5             /* measurements, of which the best counts */
#define RUN_SECONDS 0.05   /* of a measurement, at least */
#define PLENTY (16u << 20) /* floats of each operand: 64 MiB, larger than today's caches */

struct bench {
    const struct attn_kernels *kernels;
    float *a, *b, *c, *d; /* [PLENTY] each */
    size_t rows, k, n;
    enum attn_dtype dtype; /* of project */
};

static void multiply(const struct bench *b, enum attn_dtype dtype)
{
    b->kernels->matmul[dtype](&(struct attn_matmul){.c = b->c,
                                                    .a = b->a,
                                                    .b = b->b,
                                                    .prepared = (void *)b->d,
                                                    .ldc = b->n,
                                                    .lda = b->k,
                                                    .ldb = b->n,
                                                    .rows = b->rows,
                                                    .k = b->k,
                                                    .n = b->n});
}

static void run_matmul(const struct bench *b) { multiply(b, ATTN_F32); }

/* prepare_rows is not called: any bits are valid prepared rows. */
static void run_matmul_int8(const struct bench *b) { multiply(b, ATTN_INT8); }

/* Computes block after block, as lib/layers/linear.c does.  The values of x and w do not matter. */
static void run_project(const struct bench *b)
{
    const size_t each = attn_numbers_per_word(b->dtype), depth = ATTN_RANGE_WORDS * each;
    struct attn_projection_part block = {
        .y = b->c,
        .x = b->a,
        .w = b->b,
        .row_scale = b->a,
        .scale = b->a,
        .scratch = b->d,
        .ldy = b->n,
        .ldx = b->k,
        .ldpanel = attn_ceil_div(b->k, each) * ATTN_PANEL,
        .rows = b->rows,
        .n = b->n,
    };
    for (size_t i = 0; i < b->k; i += depth) {
        block.k = attn_min(b->k - i, depth);
        b->kernels->project[b->dtype](&block);
        block.x = (const char *)block.x + block.k * (b->dtype == ATTN_INT8 ? 1 : sizeof(float));
        block.w = (const float *)block.w + ATTN_RANGE_WORDS * ATTN_PANEL;
        block.addend = block.y;
        block.ldaddend = block.ldy;
    }
}

static void run_outer(const struct bench *b)
{
    b->kernels->outer(&(struct attn_outer){.c = b->c,
                                           .a = b->a,
                                           .b = b->b,
                                           .ldc = b->n,
                                           .lda = b->rows,
                                           .ldb = b->n,
                                           .rows = b->rows,
                                           .k = b->k,
                                           .n = b->n});
}

/* Restores the scores before each run: repeated exp would soon make them all equal. */
static void run_softmax(const struct bench *b)
{
    memcpy(b->c, b->a, b->rows * b->n * sizeof(float));
    memset(b->d, 0, 2 * b->rows * sizeof(float));
    b->kernels->softmax(b->c, b->n, b->d, b->d + b->rows, b->d + 2 * b->rows, b->rows, b->n);
}

static void run_softmax_columns(const struct bench *b)
{
    const struct attn_score_columns columns = {b->c, b->rows, b->rows, b->n, NULL, NULL};
    memcpy(b->c, b->a, b->rows * b->n * sizeof(float));
    memset(b->d, 0, 2 * b->rows * sizeof(float));
    b->kernels->softmax_columns(&columns, b->d, b->d + b->rows, b->d + 2 * b->rows);
}

static void run_transpose(const struct bench *b)
{
    const float *rows[64];
    for (size_t r = 0; r < b->rows; r++)
        rows[r] = b->a + r * b->n;
    b->kernels->transpose(b->c, b->rows, rows, b->rows, b->n, 1);
}

static void run_scale_rows(const struct bench *b)
{
    for (size_t r = 0; r < b->rows; r++)
        b->d[r] = 1;
    b->kernels->scale_rows(b->c, b->n, b->d, b->rows, b->n);
}

static void run_all_within(const struct bench *b)
{
    if (!b->kernels->all_within(b->b, b->n, 1))
        abort();
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Seconds of one call, the best of RUNS measurements. */
static double time_of(void (*run)(const struct bench *), const struct bench *bench)
{
    double best = 1e9;
    run(bench);
    for (int i = 0; i < RUNS; i++) {
        size_t calls = 0;
        double start = seconds(), took;
        do {
            run(bench);
            calls++;
            took = seconds() - start;
        } while (took < RUN_SECONDS);
        best = took / (double)calls < best ? took / (double)calls : best;
    }
    return best;
}

static const struct {
    const char *name;
    void (*run)(const struct bench *);
    size_t rows, k, n;
    double flops;  /* of a call, for each rows * k * n */
    double floats; /* of the large operand, read in a call */
    bool dtypes;   /* measured for each dtype of weights */
} shapes[] = {
    {"matmul", run_matmul, 64, 128, 64, .flops = 2, .floats = 128 * 64},
    {"matmul", run_matmul, 64, 64, 128, .flops = 2, .floats = 64 * 128},
    {"matmul", run_matmul, 64, 64, 64, .flops = 2, .floats = 64 * 64},
    {"matmul", run_matmul, 4, 128, 64, .flops = 2, .floats = 128 * 64},
    {"matmul", run_matmul, 4, 64, 128, .flops = 2, .floats = 64 * 128},
    {"matmul", run_matmul, 1, 128, 64, .flops = 2, .floats = 128 * 64},
    {"matmul", run_matmul, 1, 64, 64, .flops = 2, .floats = 64 * 64},
    {"matmul int8", run_matmul_int8, 4, 128, 32, .flops = 2, .floats = 128 * 8},
    {"matmul int8", run_matmul_int8, 1, 64, 32, .flops = 2, .floats = 64 * 8},
    {"outer", run_outer, 64, 128, 64, .flops = 2, .floats = 128 * 64},
    {"outer", run_outer, 64, 64, 64, .flops = 2, .floats = 64 * 64},
    {"project", run_project, 1, 4096, 4096, .flops = 2, .floats = 4096.0 * 4096, .dtypes = true},
    {"project", run_project, 2, 4096, 4096, .flops = 2, .floats = 4096.0 * 4096, .dtypes = true},
    {"project", run_project, 4, 4096, 4096, .flops = 2, .floats = 4096.0 * 4096, .dtypes = true},
    {"project", run_project, 8, 4096, 4096, .flops = 2, .floats = 4096.0 * 4096, .dtypes = true},
    {"project", run_project, 16, 4096, 4096, .flops = 2, .floats = 4096.0 * 4096, .dtypes = true},
    {"project", run_project, 32, 4096, 4096, .flops = 2, .floats = 4096.0 * 4096, .dtypes = true},
    {"project", run_project, 64, 4096, 4096, .flops = 2, .floats = 4096.0 * 4096, .dtypes = true},
    {"project", run_project, 1, 768, 768, .flops = 2, .floats = 768 * 768, .dtypes = true},
    {"project", run_project, 32, 768, 768, .flops = 2, .floats = 768 * 768, .dtypes = true},
    {"project", run_project, 128, 768, 768, .flops = 2, .floats = 768 * 768, .dtypes = true},
    {"project", run_project, 168, 4096, 4096, .flops = 2, .floats = 4096.0 * 4096, .dtypes = true},
    {"softmax", run_softmax, 64, 1, 64, .flops = 1, .floats = 64 * 64},
    {"softmax", run_softmax, 4, 1, 64, .flops = 1, .floats = 4 * 64},
    {"softmax_columns", run_softmax_columns, 64, 1, 64, .flops = 1, .floats = 64 * 64},
    {"transpose", run_transpose, 64, 1, 64, .flops = 1, .floats = 64 * 64},
    {"scale_rows", run_scale_rows, 64, 1, 128, .flops = 1, .floats = 64 * 128},
    {"all_within", run_all_within, 1, 1, PLENTY, .flops = 1, .floats = PLENTY},
};

/* A float whose word, read as two bf16, is two ordinary numbers as well. */
static float twice(float x)
{
    const uint32_t half = attn_float_to_bf16(x);
    return attn_bits_to_float(half << 16 | half);
}

static const enum attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_INT8};
enum { DTYPES = sizeof dtypes / sizeof dtypes[0] };

static void bench_shape(struct bench *bench, size_t i, enum attn_dtype dtype)
{
    bench->rows = shapes[i].rows;
    bench->k = shapes[i].k;
    bench->n = shapes[i].n;
    bench->dtype = dtype;
    double took = time_of(shapes[i].run, bench);
    double flops = shapes[i].flops * (double)(bench->rows * bench->k * bench->n);
    double bytes = 4 * shapes[i].floats / (double)attn_numbers_per_word(dtype);
    printf("%-10s %-15s %-4s %3zu x %4zu x %-8zu %9.2f us %7.1f GFLOP/s %6.1f GB/s\n",
           bench->kernels->name, shapes[i].name, attn_dtype_name(dtype), bench->rows, bench->k,
           bench->n, took * 1e6, flops / took * 1e-9, bytes / took * 1e-9);
    fflush(stdout);
}

void bench_kernels(const struct attn_kernels *kernels)
{
    struct bench bench = {.kernels = kernels};
    float **operands[] = {&bench.a, &bench.b, &bench.c, &bench.d};
    struct rng rng = {1};
    for (size_t o = 0; o < 4; o++) {
        float *operand = *operands[o] = attn_alloc_huge(PLENTY, sizeof(float));
        for (size_t i = 0; operand != NULL && i < PLENTY; i++)
            operand[i] = twice(0.9f * rng_unit(&rng));
    }
    if (bench.a == NULL || bench.b == NULL || bench.c == NULL || bench.d == NULL) {
        puts("not enough memory to measure");
        goto done;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const bool columns = shapes[i].run == run_outer || shapes[i].run == run_softmax_columns;
        for (size_t d = 0; d < (shapes[i].dtypes ? DTYPES : 1); d++)
            if (!columns || kernels->outer != NULL)
                bench_shape(&bench, i, dtypes[d]);
    }
done:
    for (size_t o = 0; o < 4; o++)
        attn_free(*operands[o]);
}
