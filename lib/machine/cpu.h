/* cpu.h: the instruction sets that CPU and operating system both support, and the number of
 * CPUs. */
#ifndef ATTN_LIB_MACHINE_CPU_H
#define ATTN_LIB_MACHINE_CPU_H

#include "attn.h"

/* The highest level that processor and operating system both support; never ATTN_CPU_AUTO.  AMX is
 * asked of the kernel, for the whole process, where `wanted` is ATTN_CPU_AUTO or a level with AMX;
 * for others the answer may be the level below. */
enum attn_cpu_level attn_cpu_best(enum attn_cpu_level wanted);

/* The level that ATTN_CPU_AUTO is on this CPU: the fastest that attn_cpu_best allows. */
enum attn_cpu_level attn_cpu_auto(void);

#ifdef __x86_64__
/* ATTN_CPU_AUTO for a CPU of this best level, of CPUID's vendor, with or without AVX512_VBMI: the
 * best one but for Intel's AVX512_BF16 beside VBMI (Sapphire Rapids and later, with AMX masked or
 * refused).  vdpbf16ps is half as fast there as float32 multiply-adds, which bf16 weights take at
 * ATTN_CPU_AVX512VNNI (docs/BENCHMARKS.md).  Cooper Lake, without VBMI, was not measured. */
enum attn_cpu_level attn_cpu_fastest(enum attn_cpu_level best, const char *vendor, bool vbmi);
#endif

/* As in ATTN_CPU_LEVEL_NAMES. */
const char *attn_cpu_level_name(enum attn_cpu_level level);

/* CPUs that this process may use: its affinity mask, bounded by the CPU quota of its control
 * groups, rounded up; at least 1. */
unsigned attn_cpu_count(void);

/* Prints the CPU's signature (family, model, stepping; in hexadecimal digits) and its name. */
#define ATTN_CPU_TEXT_MAX 80
void attn_cpu_print(char out[ATTN_CPU_TEXT_MAX]);

#endif
