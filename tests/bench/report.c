/* report.c: printing results.
 *
 * A `~` before a fraction marks a shape whose ceiling moved by more than a tenth in every attempt,
 * or its times did, or whose time is below its floor: the fraction is then less certain. */
#include "report.h"

#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "mem.h"

#define BEGIN_MARK "<!-- measured: begin -->"
#define END_MARK "<!-- measured: end -->"
#define MAX_DOCUMENT ((size_t)1 << 20) /* bytes */
#define MACHINE_NAME 256

static const char *steadiness(const struct bench_result *r) { return r->steady ? "" : "~"; }

/* ---- JSON ---------------------------------------------------------------------------------- */

/* Prints a member whose text comes from the operating system. */
static void print_text(const char *name, const char *text)
{
    printf("\"%s\":\"", name);
    for (; *text != '\0'; text++)
        if (*text != '"' && *text != '\\' && (unsigned char)*text >= ' ')
            putchar(*text);
    printf("\",");
}

static const char *const peak_names[] = {"fp32", "bf16", "int8"};
static const char *const feed_names[] = {"", "l1_", "l2_"};

static void print_peaks(const struct bench_ceilings *c)
{
    for (int f = 0; f < BENCH_NUM_FEEDS; f++)
        for (int i = 0; i < BENCH_NUM_PEAKS; i++)
            if (c->peak[f][i] > 0)
                printf("\"peak_%s_%sgflops\":%.1f,", peak_names[i], feed_names[f], c->peak[f][i]);
            else
                printf("\"peak_%s_%sgflops\":null,", peak_names[i], feed_names[f]);
}

void bench_print_json(const struct bench_result *r)
{
    char machine[MACHINE_NAME];
    bench_machine_name(machine, sizeof machine);
    printf("{\"shape\":\"%s\",\"dtype\":\"%s\",\"threads\":%u,", r->shape->name, r->dtype->name,
           r->engine.threads);
    printf("\"ms\":%.6g,\"floor_ms\":%.6g,\"fraction\":%.4f,", r->ms, r->floor_ms,
           r->fraction[BENCH_REGISTERS]);
    printf("\"fraction_l1\":%.4f,\"fraction_l2\":%.4f,\"max_error\":%.3g,", r->fraction[BENCH_L1],
           r->fraction[BENCH_L2], r->max_error);
    printf("\"gflops\":%.1f,\"gbs\":%.2f,\"bound\":\"%s\",", r->gflops, r->gbs,
           bench_bound_name(r->bound));
    print_peaks(&r->ceilings);
    printf("\"memory_gbs\":%.1f,\"cache_gbs\":%.1f,\"handover_ns\":%.0f,", r->ceilings.memory,
           r->ceilings.cache, r->ceilings.handover_ns);
    printf("\"steady\":%s,", r->steady ? "true" : "false");
    printf("\"gap\":%.3f,\"spread\":%.3f,\"runs\":%zu,\"attempts\":%zu,", r->gap, r->spread,
           r->runs, r->attempts);
    if (r->shape->growth_mib > 0)
        printf("\"growth_mib\":%.1f,", r->growth_mib);
    print_text("core", r->engine.blas_core ? r->engine.blas_core : "");
    print_text("gemm", r->engine.gemm_name);
    print_text("level", r->engine.level_name);
    print_text("machine", machine);
    printf("\"right\":%s}\n", r->right ? "true" : "false");
    fflush(stdout);
}

/* ---- Table --------------------------------------------------------------------------------- */

static void write_ceilings(FILE *to, const struct bench_ceilings *c, unsigned threads)
{
    fprintf(to, "- %u thread%s: ", threads, threads == 1 ? "" : "s");
    for (int i = 0; i < BENCH_NUM_PEAKS; i++) {
        if (c->peak[BENCH_REGISTERS][i] > 0)
            fprintf(to, "%s %.0f GFLOP/s (from L1 %.0f, L2 %.0f), ", peak_names[i],
                    c->peak[BENCH_REGISTERS][i], c->peak[BENCH_L1][i], c->peak[BENCH_L2][i]);
        else
            fprintf(to, "%s none, ", peak_names[i]);
    }
    fprintf(to, "memory %.1f GB/s, L3 %.1f GB/s", c->memory, c->cache);
    if (c->handover_ns > 0)
        fprintf(to, ", a cache line handed over in %.0f ns", c->handover_ns);
    fputc('\n', to);
}

void bench_print_machine(FILE *to, const struct attn_engine_info *engine,
                         const struct bench_meter *meter, const struct bench_ceilings *one,
                         const struct bench_ceilings *all)
{
    char machine[MACHINE_NAME];
    bench_machine_name(machine, sizeof machine);
    fprintf(to, "- machine: %s\n", machine);
    fprintf(to, "- %u thread%s, %s kernels, gemm %s%s%s; ceilings by %s loops\n", engine->threads,
            engine->threads == 1 ? "" : "s", engine->level_name, engine->gemm_name,
            engine->blas_core ? ", OpenBLAS core " : "", engine->blas_core ? engine->blas_core : "",
            bench_meter_level(meter));
    write_ceilings(to, one, 1);
    if (engine->threads > 1)
        write_ceilings(to, all, engine->threads);
}

void bench_print_head(void)
{
    printf("\n%-9s %-5s %-10s %9s %9s %7s %10s %-6s %8s %6s %6s %8s %11s %s\n", "shape", "dtype",
           "level", "ms", "GFLOP/s", "GB/s", "floor ms", "by", "fraction", "of L1", "of L2",
           "error", "memory GB/s", "growth");
}

/* What tells one engine's rows from another's. */
static const char *way_of(const struct attn_engine_info *engine)
{
    return engine->gemm == ATTN_GEMM_AUTO ? engine->level_name : engine->gemm_name;
}

void bench_print_row(const struct bench_result *r)
{
    char fraction[16];
    snprintf(fraction, sizeof fraction, "%s%.2f", steadiness(r), r->fraction[BENCH_REGISTERS]);
    printf("%-9s %-5s %-10s %9.3f %9.1f %7.1f %10.3f %-6s %8s %6.2f %6.2f %8.1e %11.1f",
           r->shape->name, r->dtype->name, way_of(&r->engine), r->ms, r->gflops, r->gbs,
           r->floor_ms, bench_bound_name(r->bound), fraction, r->fraction[BENCH_L1],
           r->fraction[BENCH_L2], r->max_error, r->ceilings.memory);
    if (r->shape->growth_mib > 0)
        printf(" %5.1f MiB", r->growth_mib);
    printf("%s\n", r->right ? "" : "  WRONG");
    fflush(stdout);
}

void bench_print_ratio(const struct bench_result sides[2])
{
    const bool modes = sides[0].engine.gemm != sides[1].engine.gemm;
    const char *names[2];
    for (int s = 0; s < 2; s++)
        names[s] = modes ? sides[s].engine.gemm_name : sides[s].engine.level_name;
    printf("%-9s %s / %s: %.3f ms / %.3f ms = %.3f (medians of %zu calls each, in turn)\n",
           sides[0].shape->name, names[0], names[1], sides[0].ms, sides[1].ms,
           sides[0].ms / sides[1].ms, sides[0].runs);
    fflush(stdout);
}

/* ---- Markdown ------------------------------------------------------------------------------ */

static void write_row(FILE *to, const struct bench_result *r)
{
    const struct bench_shape *s = r->shape;
    fprintf(
        to,
        "| %s | %s | %s | %.4g | %.0f | %.1f | %.4g | %s | %s%.2f | %.2f | %.2f | %.1e | %.0f | "
        "%.0f | ",
        s->name, r->dtype->name, way_of(&r->engine), r->ms, r->gflops, r->gbs, r->floor_ms,
        bench_bound_name(r->bound), steadiness(r), r->fraction[BENCH_REGISTERS],
        r->fraction[BENCH_L1], r->fraction[BENCH_L2], r->max_error, r->ceilings.memory,
        r->ceilings.handover_ns);
    if (s->growth_mib > 0)
        fprintf(to, "%.0f MiB of %.0f | ", r->growth_mib, s->growth_mib);
    else
        fputs("| ", to);
    if (s->peer != NULL)
        fprintf(to, "%.2f %s (%.4g ms) |\n", s->peer_floor_ms / s->peer_ms, s->peer, s->peer_ms);
    else
        fputs("|\n", to);
}

static void write_measured(FILE *to, const struct bench_result results[], size_t count,
                           const struct bench_meter *meter, const struct bench_ceilings *one,
                           const struct bench_ceilings *all)
{
    fprintf(to, "%s\n\n", BEGIN_MARK);
    bench_print_machine(to, &results[0].engine, meter, one, all);
    fputs(
        "\n| shape | dtype | level | ms | GFLOP/s | GB/s | floor ms | bound by | fraction | of L1 "
        "| of L2 | max error | memory GB/s | hand-over ns | growth | fastest fp32 peer, another "
        "run |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        to);
    for (size_t i = 0; i < count; i++)
        write_row(to, &results[i]);
    fprintf(to, "\n%s\n", END_MARK);
}

/* The whole document, NUL-terminated, for attn_free; NULL where there is none. */
static char *read_document(const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return NULL;
    char *text = bench_need(attn_alloc(MAX_DOCUMENT, 1));
    size_t length = fread(text, 1, MAX_DOCUMENT - 1, file);
    if (ferror(file) || !feof(file))
        bench_die("%s: cannot be read, or is longer than %zu bytes", path, MAX_DOCUMENT - 1);
    text[length] = '\0';
    fclose(file);
    return text;
}

void bench_write_markdown(const char *path, const struct bench_result results[], size_t count,
                          const struct bench_meter *meter, const struct bench_ceilings *one,
                          const struct bench_ceilings *all)
{
    char *old = read_document(path);
    const char *begin = old != NULL ? strstr(old, BEGIN_MARK) : NULL;
    const char *end = begin != NULL ? strstr(begin, END_MARK "\n") : NULL;
    if (old != NULL && end == NULL)
        bench_die("%s: has no lines %s and %s to write between", path, BEGIN_MARK, END_MARK);
    FILE *to = fopen(path, "w");
    if (to == NULL)
        bench_die("%s: cannot be written", path);
    if (old != NULL)
        fwrite(old, 1, (size_t)(begin - old), to);
    write_measured(to, results, count, meter, one, all);
    if (old != NULL)
        fputs(end + strlen(END_MARK "\n"), to);
    if (ferror(to) | fclose(to))
        bench_die("%s: cannot be written", path);
    attn_free(old);
}
