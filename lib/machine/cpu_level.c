/* cpu_level.c: the instruction sets of this CPU, by architecture.
 *
 * x86-64: a CPUID bit says what the processor can do, XCR0 which registers the operating system
 * saves on a context switch.  A level counts only where both agree; under some hypervisors and
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
#define NEED_AVX512 (bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL)
#define NEED_AMX (1u << 24 | 1u << 22 | 1u << 25) /* AMX-TILE, AMX-BF16, AMX-INT8 */

/* The register state that the operating system saves.  Valid only where CPUID reports OSXSAVE. */
static unsigned read_xcr0(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static pthread_once_t amx_once = PTHREAD_ONCE_INIT;
static bool amx_is_permitted;

static void ask_for_amx(void)
{
    amx_is_permitted = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

/* Asks once: a process keeps its level. */
static bool may_use_amx(void)
{
    pthread_once(&amx_once, ask_for_amx);
    return amx_is_permitted;
}

enum attn_cpu_level attn_cpu_best(enum attn_cpu_level wanted)
{
    unsigned a, b, c, d, b7, c7, d7;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE))
        return ATTN_CPU_PORTABLE;
    unsigned saved = read_xcr0();
    if ((saved & XCR0_AVX) != XCR0_AVX || !(c & bit_AVX) || !(c & bit_FMA) || !(c & bit_F16C))
        return ATTN_CPU_PORTABLE;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || !(b7 & bit_AVX2))
        return ATTN_CPU_PORTABLE;
    if ((saved & XCR0_AVX512) != XCR0_AVX512 || (b7 & NEED_AVX512) != NEED_AVX512)
        return ATTN_CPU_AVX2;
    if (!(c7 & bit_AVX512VNNI))
        return ATTN_CPU_AVX512;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & bit_AVX512BF16))
        return ATTN_CPU_AVX512VNNI;
    const bool amx = wanted == ATTN_CPU_AUTO || wanted >= ATTN_CPU_AVX512AMX;
    if (!amx || (saved & XCR0_AMX) != XCR0_AMX || (d7 & NEED_AMX) != NEED_AMX || !may_use_amx())
        return ATTN_CPU_AVX512BF16;
    return ATTN_CPU_AVX512AMX;
}

#define NEED_VBMI 2u /* of leaf 7's ecx: from Ice Lake on, not in Cooper Lake */

enum attn_cpu_level attn_cpu_fastest(enum attn_cpu_level best, const char *vendor, bool vbmi)
{
    const bool slow = strcmp(vendor, "GenuineIntel") == 0 && vbmi;
    return best == ATTN_CPU_AVX512BF16 && slow ? ATTN_CPU_AVX512VNNI : best;
}

enum attn_cpu_level attn_cpu_auto(void)
{
    unsigned a, b = 0, c = 0, d = 0;
    (void)__get_cpuid(0, &a, &b, &c, &d);
    const unsigned text[] = {b, d, c, 0}; /* the order of CPUID */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        c = 0;
    return attn_cpu_fastest(attn_cpu_best(ATTN_CPU_AUTO), (const char *)text, c & NEED_VBMI);
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

enum attn_cpu_level attn_cpu_best(enum attn_cpu_level wanted)
{
    (void)wanted;
    if (!(getauxval(AT_HWCAP) & HWCAP_ASIMD))
        return ATTN_CPU_PORTABLE;
    if (!(getauxval(AT_HWCAP) & HWCAP_ASIMDDP))
        return ATTN_CPU_NEON;
    return getauxval(AT_HWCAP2) & HWCAP2_BF16 ? ATTN_CPU_BF16 : ATTN_CPU_DOTPROD;
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

enum attn_cpu_level attn_cpu_best(enum attn_cpu_level wanted)
{
    (void)wanted;
    return ATTN_CPU_PORTABLE;
}

void attn_cpu_print(char out[ATTN_CPU_TEXT_MAX]) { snprintf(out, ATTN_CPU_TEXT_MAX, "unknown"); }

#endif

#if !defined __x86_64__
enum attn_cpu_level attn_cpu_auto(void) { return attn_cpu_best(ATTN_CPU_AUTO); }
#endif
