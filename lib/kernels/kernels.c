/* kernels.c: fills the kernel table: the portable level first, then each higher level over it. */
#include "kernels/kernels.h"

#include "machine/cpu.h"

void attn_kernels_get(struct attn_kernels *out, enum attn_cpu_level level)
{
    static void (*const fill[ATTN_NUM_CPU_LEVELS])(struct attn_kernels *) = {
        [ATTN_CPU_PORTABLE] = attn_kernels_portable,
#ifdef __x86_64__
        [ATTN_CPU_AVX2] = attn_kernels_avx2,
        [ATTN_CPU_AVX512] = attn_kernels_avx512,
        [ATTN_CPU_AVX512VNNI] = attn_kernels_avx512_vnni,
        [ATTN_CPU_AVX512BF16] = attn_kernels_avx512_bf16,
        [ATTN_CPU_AVX512AMX] = attn_kernels_avx512_amx,
#elif defined __aarch64__
        [ATTN_CPU_NEON] = attn_kernels_neon,
        [ATTN_CPU_DOTPROD] = attn_kernels_neon_dotprod,
        [ATTN_CPU_BF16] = attn_kernels_neon_bf16,
#endif
    };
    for (size_t i = ATTN_CPU_PORTABLE; i <= (size_t)level; i++)
        if (fill[i] != NULL)
            fill[i](out);
    out->name = attn_cpu_level_name(level);
}
