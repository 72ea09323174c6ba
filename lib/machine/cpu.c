/* cpu.c: the features of this CPU, by architecture, and the levels that need them.
 *
 * x86-64: a CPUID bit says what the processor can do, XCR0 which registers the operating system
 * saves on a context switch.  A feature counts only where both agree; under some hypervisors and
 * kernels they do not.  The registers of AMX are large, so Linux gives them to a process that asks:
 * from then on its alternate signal stacks must have room for them (AT_MINSIGSTKSZ).
 *
 * arm64: the kernel lists in the auxiliary vector what processor and kernel both support. */
#include "machine/cpu.h"

#include <stdio.h>

#if defined __x86_64__

#include <asm/prctl.h>
#include <cpuid.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define XCR0_AVX 0x06u    /* SSE and the upper halves of ymm */
#define XCR0_AVX512 0xe6u /* those, the mask registers, zmm and zmm16 to zmm31 */
#define XCR0_AMX 0x60000u /* tiles and their configuration */
#define TILE_DATA 18      /* the component of the tiles in XCR0 */
#define NEED_AVX2 (bit_AVX | bit_FMA | bit_F16C)
#define NEED_AVX512 (bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL)
#define NEED_AMX (1u << 24 | 1u << 22 | 1u << 25) /* AMX-TILE, AMX-BF16, AMX-INT8 */
#define NEED_VBMI 2u /* of leaf 7's ecx: from Ice Lake on, not in Cooper Lake */

static pthread_once_t amx_once = PTHREAD_ONCE_INIT; /* a process keeps its level */
static bool amx_is_permitted;

static void ask_for_amx(void)
{
    amx_is_permitted = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

unsigned attn_cpu_fastest(unsigned features, const char *vendor, bool vbmi)
{
    const bool slow = strcmp(vendor, "GenuineIntel") == 0 && vbmi && !(features & ATTN_HAS_AMX);
    return slow ? features & ~(unsigned)ATTN_HAS_BF16 : features;
}

static unsigned detect(enum attn_cpu_level level)
{
    unsigned a, b, c, d, b7, c7, d7, saved, features = ATTN_HAS_AVX2 | ATTN_HAS_AVX512;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return 0;
    __asm__ volatile("xgetbv" : "=a"(saved), "=d"(d) : "c"(0)); /* XCR0 */
    if ((saved & XCR0_AVX) != XCR0_AVX || (c & NEED_AVX2) != NEED_AVX2 ||
        !__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || !(b7 & bit_AVX2))
        return 0;
    if ((saved & XCR0_AVX512) != XCR0_AVX512 || (b7 & NEED_AVX512) != NEED_AVX512)
        return ATTN_HAS_AVX2;
    if (c7 & bit_AVX512VNNI)
        features |= ATTN_HAS_VNNI;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & bit_AVX512BF16))
        features |= ATTN_HAS_BF16;
    if ((saved & XCR0_AMX) == XCR0_AMX && (d7 & NEED_AMX) == NEED_AMX &&
        (level == ATTN_CPU_AUTO || level >= ATTN_CPU_AVX512AMX)) {
        pthread_once(&amx_once, ask_for_amx);
        features |= amx_is_permitted ? ATTN_HAS_AMX : 0;
    }
    if (level != ATTN_CPU_AUTO)
        return features;
    unsigned vendor[4] = {0};
    (void)__get_cpuid(0, &a, &vendor[0], &vendor[2], &vendor[1]);
    return attn_cpu_fastest(features, (const char *)vendor, c7 & NEED_VBMI);
}

void attn_cpu_print(char out[ATTN_CPU_TEXT_MAX])
{
    unsigned signature = 0, ignored[3], name[12] = {0};
    (void)__get_cpuid(1, &signature, &ignored[0], &ignored[1], &ignored[2]);
    for (unsigned i = 0; i < 3; i++)
        (void)__get_cpuid(0x80000002u + i, &name[4 * i], &name[4 * i + 1], &name[4 * i + 2],
                          &name[4 * i + 3]);
    snprintf(out, ATTN_CPU_TEXT_MAX, "%x %.48s", signature, (const char *)name);
}

#elif defined __aarch64__

#include <asm/hwcap.h>
#include <sys/auxv.h>

static unsigned detect(enum attn_cpu_level level)
{
    (void)level;
    return (getauxval(AT_HWCAP) & HWCAP_ASIMD ? ATTN_HAS_NEON : 0) |
           (getauxval(AT_HWCAP) & HWCAP_ASIMDDP ? ATTN_HAS_DOTPROD : 0) |
           (getauxval(AT_HWCAP2) & HWCAP2_BF16 ? ATTN_HAS_BF16 : 0);
}

/* The processor's identification register, where the kernel lets programs read it. */
void attn_cpu_print(char out[ATTN_CPU_TEXT_MAX])
{
    unsigned long midr = 0;
    if (getauxval(AT_HWCAP) & HWCAP_CPUID)
        __asm__("mrs %0, midr_el1" : "=r"(midr));
    snprintf(out, ATTN_CPU_TEXT_MAX, "%lx %lx %lx", midr, getauxval(AT_HWCAP),
             getauxval(AT_HWCAP2));
}

#else

static unsigned detect(enum attn_cpu_level level)
{
    (void)level;
    return 0;
}

void attn_cpu_print(char out[ATTN_CPU_TEXT_MAX]) { snprintf(out, ATTN_CPU_TEXT_MAX, "unknown"); }

#endif

/* ---- Levels --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    unsigned needs; /* features */
} levels[ATTN_NUM_CPU_LEVELS] = {
    [ATTN_CPU_AUTO] = {"auto", 0},
    [ATTN_CPU_PORTABLE] = {"portable", 0},
#if defined __x86_64__
    [ATTN_CPU_AVX2] = {"avx2", ATTN_HAS_AVX2},
    [ATTN_CPU_AVX512] = {"avx512", ATTN_HAS_AVX512},
    [ATTN_CPU_AVX512VNNI] = {"avx512vnni", ATTN_HAS_AVX512 | ATTN_HAS_VNNI},
    [ATTN_CPU_AVX512BF16] = {"avx512bf16", ATTN_HAS_AVX512 | ATTN_HAS_BF16},
    [ATTN_CPU_AVX512AMX] = {"avx512amx",
                            ATTN_HAS_AVX512 | ATTN_HAS_VNNI | ATTN_HAS_BF16 | ATTN_HAS_AMX},
#elif defined __aarch64__
    [ATTN_CPU_NEON] = {"neon", ATTN_HAS_NEON},
    [ATTN_CPU_DOTPROD] = {"dotprod", ATTN_HAS_NEON | ATTN_HAS_DOTPROD},
    [ATTN_CPU_BF16] = {"bf16", ATTN_HAS_NEON | ATTN_HAS_BF16},
#endif
};

const char *attn_cpu_level_name(enum attn_cpu_level level)
{
    return (size_t)level < ATTN_NUM_CPU_LEVELS ? levels[level].name : "unknown";
}

unsigned attn_cpu_features(enum attn_cpu_level level)
{
    unsigned usable = 0;
    for (size_t i = 0; i < ATTN_NUM_CPU_LEVELS && (level == ATTN_CPU_AUTO || i <= level); i++)
        usable |= levels[i].needs;
    return usable & detect(level);
}

enum attn_cpu_level attn_cpu_level_of(unsigned features)
{
    enum attn_cpu_level level = ATTN_NUM_CPU_LEVELS - 1;
    while (level > ATTN_CPU_PORTABLE && (levels[level].needs & ~features) != 0)
        level--;
    return level;
}
