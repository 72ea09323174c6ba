/* kernels.c: fills the kernel table: the portable level first, then each higher level over it. */
#include "kernels/kernels.h"

#include "cpu.h"

void attn_kernels_get(struct attn_kernels *out, enum attn_cpu_level level)
{
    attn_kernels_portable(out);
    if (level >= ATTN_CPU_AVX2)
        attn_kernels_avx2(out);
    if (level >= ATTN_CPU_AVX512)
        attn_kernels_avx512(out);
    if (level >= ATTN_CPU_AVX512VNNI)
        attn_kernels_avx512_vnni(out);
    if (level >= ATTN_CPU_AVX512BF16)
        attn_kernels_avx512_bf16(out);
    out->name = attn_cpu_level_name(level);
}
