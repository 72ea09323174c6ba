/* kernelcheck.c: every kernel at every level that this CPU has, against references in double.
 *
 *   kernelcheck [--seed N] [--seconds N]   a sweep over all tails, then random cases
 *               [--gemm MODE]              OpenBLAS' products too: auto (where it can be loaded),
 *                                          openblas (it must be) or packed (they are not)
 *               [--every N]                each N-th case of the sweep and of exp, for emulators
 *   kernelcheck --bench                    GFLOP/s and GB/s
 *   kernelcheck --exp                      the error of exp over all floats of [-104, 0]
 *
 * The sweep takes rows through 1..70 and k and n through 1..130, each value at least once.  Arrays
 * end at pages that cannot be touched (guard.h); a fault there prints the case that caused it.  The
 * seed is printed, and the same seed runs the same cases in the same order.
 */
#include "kernelcheck.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attn_limits.h"
#include "machine/cpu.h"

#define MAX_TAIL_ROWS 70
#define MAX_TAIL 130
#define MAX_MESSAGES 20 /* failures that are printed; all are counted */
#define EXP_STEP 4093   /* a normal run checks every 4093rd float */

static const struct {
    const char *name;
    const char *(*check)(struct check *check, size_t rows, size_t k, size_t n);
    bool openblas; /* has this kernel */
} table[] = {
    {"matmul", check_matmul, true},
    {"matmul int8", check_matmul_int8, false},
    {"matmul_pairs", check_pairs, false},
    {"outer", check_outer, false},
    {"project", check_project, true},
    {"project bf16", check_project_bf16, true},
    {"project int8", check_project_int8, false},
    {"quantize", check_quantize, false},
    {"softmax", check_softmax, false},
    {"softmax_columns", check_softmax_columns, false},
    {"transpose", check_transpose, false},
    {"widen_keys", check_widen_keys, false},
    {"finish_weights", check_finish_weights, false},
    {"scale", check_scale, false},
    {"scale_rows", check_scale_rows, false},
    {"all_within", check_all_within, false},
};
enum { NUM_KERNELS = sizeof table / sizeof table[0] };

struct run {
    struct check check;
    struct attn_kernels kernels[ATTN_NUM_CPU_LEVELS]; /* [1..levels] */
    size_t levels;
    struct attn_kernels emulated; /* level avx512 with an emulated vdpbf16ps; name NULL without */
    struct attn_kernels openblas, sbgemm; /* names NULL without */
    size_t passed, failed;
};

/* The case for the fault handler, which may read little else. */
static struct run *volatile running;

static void on_fault(int signal)
{
    static const char text[] = "FAIL: touched memory beyond its operands: ";
    const struct check *check = &running->check;
    (void)signal;
    if (write(STDOUT_FILENO, text, sizeof text - 1) < 0 ||
        write(STDOUT_FILENO, check->kernels->name, strlen(check->kernels->name)) < 0 ||
        write(STDOUT_FILENO, " ", 1) < 0 ||
        write(STDOUT_FILENO, check->what, strlen(check->what)) < 0 ||
        write(STDOUT_FILENO, "\n", 1) < 0)
        _exit(2);
    _exit(1);
}

static void count(struct run *run, const char *kernel, const char *wrong)
{
    if (wrong == NULL) {
        run->passed++;
        return;
    }
    if (run->failed++ < MAX_MESSAGES)
        printf("FAIL: %s %s (%s): %s\n", run->check.kernels->name, kernel, run->check.what, wrong);
}

static void run_kernel(struct run *run, const struct attn_kernels *kernels, size_t kernel,
                       size_t rows, size_t k, size_t n)
{
    run->check.kernels = kernels;
    run->check.bits_vary = kernels == &run->openblas || kernels == &run->sbgemm;
    snprintf(run->check.what, sizeof run->check.what, "%s", table[kernel].name);
    count(run, table[kernel].name, table[kernel].check(&run->check, rows, k, n));
}

/* One case of every kernel at every level. */
static void run_case(struct run *run, size_t rows, size_t k, size_t n)
{
    for (size_t s = 0; s < NUM_KERNELS; s++) {
        for (size_t level = 1; level <= run->levels; level++)
            run_kernel(run, &run->kernels[level], s, rows, k, n);
        if (table[s].check == check_project_bf16 && run->emulated.name != NULL)
            run_kernel(run, &run->emulated, s, rows, k, n);
        if (table[s].openblas && run->openblas.name != NULL)
            run_kernel(run, &run->openblas, s, rows, k, n);
        if (table[s].check == check_project_bf16 && run->sbgemm.name != NULL)
            run_kernel(run, &run->sbgemm, s, rows, k, n);
    }
}

/* k and n take every value, as 37 and 59 have no factor in common with 130. */
static void run_sweep(struct run *run, size_t every)
{
    for (size_t i = 0; i < MAX_TAIL; i += every)
        run_case(run, 1 + i % MAX_TAIL_ROWS, 1 + i * 37 % MAX_TAIL, 1 + i * 59 % MAX_TAIL);
}

static void run_random(struct run *run, double limit)
{
    struct rng *rng = &run->check.rng;
    time_t end = time(NULL) + (time_t)limit;
    while (time(NULL) < end) {
        size_t most = rng_next(rng) % 4 == 0 ? ATTN_MAX_HEAD_DIM : MAX_TAIL;
        size_t rows = rng_between(rng, 1, MAX_TAIL_ROWS), n = rng_between(rng, 1, MAX_TAIL);
        run_case(run, rows, rng_between(rng, 1, most), n);
    }
}

static void run_exp(struct run *run, size_t step)
{
    for (size_t level = 1; level <= run->levels; level++) {
        float at = 0;
        run->check.kernels = &run->kernels[level];
        double worst = exp_error(&at, run->check.kernels, step);
        printf("%-10s exp: at most %.3f ulp, at %.9g\n", run->check.kernels->name, worst,
               (double)at);
        snprintf(run->check.what, sizeof run->check.what, "%.3f ulp at %.9g", worst, (double)at);
        count(run, "exp", worst <= 2 ? NULL : "beyond 2 ulp");
    }
}

struct options {
    uint64_t seed;
    double seconds;
    size_t every;
    enum attn_gemm_mode gemm;
    bool bench, exp;
};

static bool parse_gemm(enum attn_gemm_mode *out, const char *text)
{
    for (*out = ATTN_GEMM_AUTO; text != NULL && *out < ATTN_NUM_GEMM_MODES; ++*out)
        if (strcmp(attn_gemm_mode_name(*out), text) == 0)
            return true;
    return false;
}

/* False where it has to be there and is not. */
static bool load_openblas(struct run *run, enum attn_gemm_mode mode)
{
    struct attn_error error = {0};
    if (mode == ATTN_GEMM_PACKED || kernels_openblas(&run->openblas, &run->sbgemm, &error))
        return true;
    printf("kernelcheck: %s\n", error.message);
    return mode == ATTN_GEMM_AUTO;
}

static bool parse_number(unsigned long long *out, const char *text)
{
    char *end;
    errno = 0;
    *out = text != NULL ? strtoull(text, &end, 10) : 0;
    return text != NULL && errno == 0 && end != text && *end == '\0';
}

static bool parse_options(struct options *out, char **argv)
{
    unsigned long long number;
    for (size_t i = 1; argv[i] != NULL; i++) {
        if (strcmp(argv[i], "--bench") == 0) {
            out->bench = true;
        } else if (strcmp(argv[i], "--exp") == 0) {
            out->exp = true;
        } else if (strcmp(argv[i], "--seed") == 0 && parse_number(&number, argv[i + 1])) {
            out->seed = number;
            i++;
        } else if (strcmp(argv[i], "--seconds") == 0 && parse_number(&number, argv[i + 1])) {
            out->seconds = (double)number;
            i++;
        } else if (strcmp(argv[i], "--every") == 0 && parse_number(&number, argv[i + 1]) &&
                   number >= 1 && number <= MAX_TAIL) {
            out->every = (size_t)number;
            i++;
        } else if (strcmp(argv[i], "--gemm") == 0 && parse_gemm(&out->gemm, argv[i + 1])) {
            i++;
        } else {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct run run;
    struct options options = {.seed = (uint64_t)time(NULL), .seconds = 5, .every = 1};
    if (argc < 1 || !parse_options(&options, argv)) {
        fputs("usage: kernelcheck [--seed N] [--seconds N] [--gemm MODE] [--every N] [--bench] "
              "[--exp]\n",
              stderr);
        return 2;
    }
    run.levels = attn_cpu_level_of(attn_cpu_features(ATTN_NUM_CPU_LEVELS - 1));
    for (size_t level = 1; level <= run.levels; level++)
        attn_kernels_get(&run.kernels[level], attn_cpu_features((enum attn_cpu_level)level));
#ifdef __x86_64__
    if (run.levels >= ATTN_CPU_AVX512) {
        run.emulated = run.kernels[ATTN_CPU_AVX512];
        kernels_emulated_bf16(&run.emulated);
        run.emulated.name = "emulated";
    }
#endif
    if (!load_openblas(&run, options.gemm))
        return 2;
    if (options.bench) {
        if (run.openblas.name != NULL)
            bench_kernels(&run.openblas);
        for (size_t level = run.levels; level >= 1; level--)
            bench_kernels(&run.kernels[level]);
        return 0;
    }
    for (size_t i = 0; i < PENS; i++)
        if (!pen_open(&run.check.pens[i], PEN_FLOATS)) {
            fputs("kernelcheck: out of memory\n", stderr);
            return 2;
        }
    printf("kernelcheck: seed %llu, levels up to %s, %u CPUs\n", (unsigned long long)options.seed,
           attn_cpu_level_name((enum attn_cpu_level)run.levels), attn_usable_cpus());
    fflush(stdout);
    run.check.rng.state = options.seed;
    run.check.kernels = &run.kernels[1];
    running = &run;
    signal(SIGSEGV, on_fault);
    run_exp(&run, options.exp ? 1 : options.every * EXP_STEP);
    if (!options.exp) {
        run_sweep(&run, options.every);
        run_random(&run, options.seconds);
    }
    printf("%zu passed, %zu failed\n", run.passed, run.failed);
    return run.failed != 0;
}
