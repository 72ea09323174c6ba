/* main.c: `build/bench`: how fast the library computes attention, beside this machine's ceilings.
 *
 * OpenBLAS takes its kernel set from the environment when an engine loads it, so inherited
 * variables of OpenBLAS are removed first.
 *
 * Exit status: 0; 1 where a result was wrong, took too much memory or could not be computed; 2
 * where an option names something that does not exist. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accuracy.h"
#include "basics/mem.h"
#include "caches.h"
#include "cross.h"
#include "machine.h"
#include "machine/cpu.h"
#include "maps.h"
#include "report.h"
#include "runs.h"
#include "slope.h"

extern char **environ;

static const char usage[] =
    "usage: bench [options]\n"
    "  --shape NAME          one shape, or those whose names begin so; default: all\n"
    "  --dtype f32|bf16|int8 of weights and caches, or all of them in turn; default f32, which F\n"
    "                        shapes always take\n"
    "  --threads N           default: the CPUs this process may use\n"
    "  --cpu-level LEVEL     " ATTN_CPU_LEVEL_NAMES "\n"
    "  --gemm MODE           packed, openblas or auto\n"
    "  --interleave LEVEL    compare with another level, or another MODE, call by call in turn\n"
    "  --json                one JSON line for each result instead of a table\n"
    "  --slope               decode time against context, 1,024 to 131,072 tokens\n"
    "  --maps                12 heads of 4,096 tokens: maps whole, pooled, ranked, measured\n"
    "  --cross               a step over 1,500 encoder rows, with a session and without\n"
    "  --accuracy DIR        what weights of --dtype and caches of --kv-dtype do to the outputs "
    "of\n"
    "                        the checkpoint in DIR\n"
    "  --kv-dtype NAME       f32, bf16, f16 or int8, for --accuracy; default f32\n"
    "  --caches              caches of published models at 32,768 tokens, from their sizes\n"
    "  --list                names of shapes; those in brackets must be asked for\n"
    "  --help                this text\n"
    "The fraction is floor / time, the floor being the larger of operations / peak and least\n"
    "bytes / bandwidth, of ceilings measured right before and after; `of L1` and `of L2` take the\n"
    "peak of multiply-adds that load their operands from there.  ~ where a ceiling or the times\n"
    "moved by more than a tenth, or cannot have held.  docs/BENCHMARKS.md says more.\n";

struct options {
    const char *shape;
    const char *accuracy;            /* a checkpoint's directory; NULL: shapes are measured */
    const struct bench_dtype *dtype; /* NULL: all */
    enum attn_dtype kv_dtype;        /* of the caches of --accuracy */
    struct attn_engine_options sides[BENCH_MAX_SIDES]; /* the second one is for --interleave */
    size_t num_sides;
    bool json, slope, maps, cross;
};

static void __attribute__((noreturn)) refuse(const char *option, const char *value)
{
    fprintf(stderr, "bench: %s %s: not known; see --help\n", option, value);
    exit(2);
}

/* ---- Options ------------------------------------------------------------------------------- */

static bool find_level(enum attn_cpu_level *out, const char *text)
{
    for (*out = ATTN_CPU_AUTO; *out < ATTN_NUM_CPU_LEVELS; ++*out)
        if (strcmp(attn_cpu_level_name(*out), text) == 0)
            return true;
    return false;
}

static bool find_gemm(enum attn_gemm_mode *out, const char *text)
{
    for (*out = ATTN_GEMM_AUTO; *out < ATTN_NUM_GEMM_MODES; ++*out)
        if (strcmp(attn_gemm_mode_name(*out), text) == 0)
            return true;
    return false;
}

/* Makes the second side, if there is one (`other` is not NULL): its level or its mode differs. */
static void finish_sides(struct options *out, const char *other)
{
    struct attn_engine_options *second = &out->sides[1];
    enum attn_cpu_level level;
    enum attn_gemm_mode gemm;
    out->num_sides = other != NULL ? 2 : 1;
    *second = out->sides[0];
    if (other == NULL)
        return;
    if (find_level(&level, other) && level != ATTN_CPU_AUTO)
        second->level = level;
    else if (find_gemm(&gemm, other) && gemm != ATTN_GEMM_AUTO)
        second->gemm = gemm;
    else
        refuse("--interleave", other);
}

static unsigned parse_threads(const char *text)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || value < 1 || value > 128)
        refuse("--threads", text);
    return (unsigned)value;
}

static const struct bench_dtype *parse_dtype(const char *text)
{
    const struct bench_dtype *dtype = bench_dtype_find(text);
    if (dtype == NULL && strcmp(text, "all") != 0)
        refuse("--dtype", text);
    return dtype;
}

static const char *parse_shape(const char *text)
{
    for (size_t i = 0; i < bench_num_shapes; i++)
        if (bench_shape_matches(&bench_shapes[i], text))
            return text;
    refuse("--shape", text);
}

static void __attribute__((noreturn)) list_shapes(void)
{
    for (size_t i = 0; i < bench_num_shapes; i++)
        printf(bench_shapes[i].on_request ? "[%s]\n" : "%s\n", bench_shapes[i].name);
    exit(0);
}

static void parse(struct options *out, int argc, char **argv)
{
    static const struct option table[] = {
        {"shape", required_argument, NULL, 's'},    {"dtype", required_argument, NULL, 'd'},
        {"threads", required_argument, NULL, 't'},  {"cpu-level", required_argument, NULL, 'c'},
        {"gemm", required_argument, NULL, 'g'},     {"interleave", required_argument, NULL, 'i'},
        {"json", no_argument, NULL, 'j'},           {"slope", no_argument, NULL, 'l'},
        {"accuracy", required_argument, NULL, 'a'}, {"kv-dtype", required_argument, NULL, 'k'},
        {"list", no_argument, NULL, 'n'},           {"help", no_argument, NULL, 'h'},
        {"maps", no_argument, NULL, 'p'},           {"cross", no_argument, NULL, 'x'},
        {"caches", no_argument, NULL, 'b'},         {NULL, 0, NULL, 0},
    };
    struct attn_engine_options *engine = &out->sides[0];
    const char *other = NULL;
    *out = (struct options){.shape = "", .dtype = &bench_dtypes[0]};
    for (int c; (c = getopt_long(argc, argv, "", table, NULL)) != -1;) {
        switch (c) {
        case 's':
            out->shape = parse_shape(optarg);
            break;
        case 'd':
            out->dtype = parse_dtype(optarg);
            break;
        case 't':
            engine->threads = parse_threads(optarg);
            break;
        case 'c':
            if (!find_level(&engine->level, optarg))
                refuse("--cpu-level", optarg);
            break;
        case 'g':
            if (!find_gemm(&engine->gemm, optarg))
                refuse("--gemm", optarg);
            break;
        case 'i':
            other = optarg;
            break;
        case 'j':
            out->json = true;
            break;
        case 'l':
            out->slope = true;
            break;
        case 'p':
        case 'x':
            *(c == 'p' ? &out->maps : &out->cross) = true;
            break;
        case 'a':
            out->accuracy = optarg;
            break;
        case 'k':
            if (!attn_dtype_find(&out->kv_dtype, optarg))
                refuse("--kv-dtype", optarg);
            break;
        case 'b':
            exit(bench_caches() ? 0 : 1);
        case 'n':
            list_shapes();
        case 'h':
            fputs(usage, stdout);
            exit(0);
        default:
            exit(2);
        }
    }
    if (optind < argc)
        refuse("argument", argv[optind]);
    finish_sides(out, other);
}

/* ---- The environment ----------------------------------------------------------------------- */

/* Finds the name of an inherited variable that OpenBLAS reads; false where there is none. */
static bool find_setting(char *name, size_t size)
{
    static const char *const heads[] = {"OPENBLAS_", "GOTO_NUM_THREADS=", "OMP_NUM_THREADS="};
    for (char **variable = environ; *variable != NULL; variable++)
        for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
            if (strncmp(*variable, heads[i], strlen(heads[i])) == 0) {
                snprintf(name, size, "%.*s", (int)strcspn(*variable, "="), *variable);
                return true;
            }
    return false;
}

static void drop_settings(void)
{
    char name[256];
    while (find_setting(name, sizeof name)) {
        fprintf(stderr, "bench: %s is not inherited\n", name);
        if (unsetenv(name) != 0)
            bench_die("%s cannot be dropped", name);
    }
}

/* ---- Running ------------------------------------------------------------------------------- */

static struct attn_engine *open_engine(const struct attn_engine_options *options)
{
    struct attn_engine *engine;
    struct attn_error error = {0};
    if (attn_engine_open(&engine, options, &error) != ATTN_OK) {
        fprintf(stderr, "bench: %s\n", error.message);
        exit(2);
    }
    return engine;
}

static void print_results(const struct bench_result *results, size_t sides, bool json)
{
    for (size_t s = 0; s < sides; s++)
        if (json)
            bench_print_json(&results[s]);
        else
            bench_print_row(&results[s]);
    if (!json && sides == 2 && results[0].ms > 0)
        bench_print_ratio(results);
}

/* Prints the machine with its ceilings, and the head of the table. */
static void print_heading(const struct attn_engine_info *info, struct bench_meter *meter)
{
    struct bench_ceilings one, all;
    bench_ceilings_measure(&one, meter, 1, 0);
    bench_ceilings_measure(&all, meter, info->threads, 0);
    bench_print_machine(info, meter, &one, &all);
    bench_print_head();
}

/* Measures one shape with new engines, which have no scratch memory from other shapes; false where
 * a result was wrong. */
static bool run_shape(const struct bench_shape *shape, const struct bench_dtype *dtype,
                      const struct options *o, struct bench_meter *meter)
{
    const size_t sides = o->num_sides;
    struct bench_result results[BENCH_MAX_SIDES];
    struct attn_engine *engines[BENCH_MAX_SIDES];
    bool right = true;
    for (size_t s = 0; s < sides; s++)
        engines[s] = open_engine(&o->sides[s]);
    bench_measure(results, shape, dtype, engines, sides, meter);
    for (size_t s = 0; s < sides; s++) {
        attn_engine_close(engines[s]);
        right = right && results[s].right;
    }
    print_results(results, sides, o->json);
    return right;
}

/* Weightless attention takes float32 alone: its shapes are measured under the first dtype. */
static bool is_wanted(const struct bench_shape *shape, const struct bench_dtype *dtype,
                      const struct options *o)
{
    return bench_shape_matches(shape, o->shape) && (o->dtype == NULL || o->dtype == dtype) &&
           (shape->kind != BENCH_CORE || dtype == &bench_dtypes[0]);
}

static bool run_shapes(const struct options *o, const struct attn_engine_info *info,
                       struct bench_meter *meter)
{
    size_t count = 0;
    bool right = true;
    if (!o->json)
        print_heading(info, meter);
    for (size_t i = 0; i < bench_num_dtypes * bench_num_shapes; i++) {
        const struct bench_dtype *dtype = &bench_dtypes[i / bench_num_shapes];
        const struct bench_shape *shape = &bench_shapes[i % bench_num_shapes];
        if (!is_wanted(shape, dtype, o))
            continue;
        right = run_shape(shape, dtype, o, meter) && right;
        count++;
    }
    if (count == 0)
        refuse("--dtype for --shape", o->shape);
    return right;
}

/* Runs the mode that the options choose; false where a result was wrong. */
static bool run(const struct options *o, struct attn_engine *engine)
{
    const struct bench_dtype *dtype = o->dtype != NULL ? o->dtype : &bench_dtypes[0];
    struct attn_engine_info info;
    if (o->accuracy != NULL) {
        bench_accuracy(o->accuracy, dtype->dtype, o->kv_dtype, engine);
        return true;
    }
    if (o->maps)
        return bench_maps(engine);
    if (o->cross)
        return bench_cross(engine, dtype);
    attn_engine_describe(&info, engine);
    struct bench_meter *meter = bench_need(bench_meter_new(info.level));
    bool right = o->slope ? bench_slope(dtype, engine, meter) : run_shapes(o, &info, meter);
    bench_meter_free(meter);
    return right;
}

int main(int argc, char **argv)
{
    struct options options;
    drop_settings();
    parse(&options, argc, argv);
    struct attn_engine *engine = open_engine(&options.sides[0]);
    bool right = run(&options, engine);
    attn_engine_close(engine);
    return right ? 0 : 1;
}
