/* report.c: printing results.
 *
 * A `~` before a fraction marks a shape whose ceiling moved by more than a tenth in every attempt,
 * or its times did, or whose time is below its floor: the fraction is then less certain. */
#include "report.h"

#include <stdio.h>

#include "machine.h"

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

static void print_peak(const struct bench_ceilings *c, int peak)
{
    const double registers = c->peak[BENCH_REGISTERS][peak], l1 = c->peak[BENCH_L1][peak];
    if (registers == 0)
        printf("%s none, ", peak_names[peak]);
    else if (l1 == 0)
        printf("%s %.0f GFLOP/s, ", peak_names[peak], registers);
    else
        printf("%s %.0f GFLOP/s (from L1 %.0f, L2 %.0f), ", peak_names[peak], registers, l1,
               c->peak[BENCH_L2][peak]);
}

static void print_ceilings(const struct bench_ceilings *c, unsigned threads)
{
    printf("- %u thread%s: ", threads, threads == 1 ? "" : "s");
    for (int i = 0; i < BENCH_NUM_PEAKS; i++)
        print_peak(c, i);
    printf("memory %.1f GB/s, L3 %.1f GB/s", c->memory, c->cache);
    if (c->handover_ns > 0)
        printf(", a cache line handed over in %.0f ns", c->handover_ns);
    putchar('\n');
}

void bench_print_machine(const struct attn_engine_info *engine, const struct bench_meter *meter,
                         const struct bench_ceilings *one, const struct bench_ceilings *all)
{
    char machine[MACHINE_NAME];
    bench_machine_name(machine, sizeof machine);
    printf("- machine: %s\n", machine);
    printf("- %u thread%s, %s kernels, gemm %s%s%s; ceilings by %s loops\n", engine->threads,
           engine->threads == 1 ? "" : "s", engine->level_name, engine->gemm_name,
           engine->blas_core ? ", OpenBLAS core " : "", engine->blas_core ? engine->blas_core : "",
           bench_meter_level(meter));
    print_ceilings(one, 1);
    if (engine->threads > 1)
        print_ceilings(all, engine->threads);
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
