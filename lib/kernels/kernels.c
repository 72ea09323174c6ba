/* kernels.c: fills the kernel table with the best that a CPU's features allow. */
#include "kernels/kernels.h"

#include "machine/cpu.h"

/* A function that sets some kernels, and the features that these need.  Later rows are faster. */
static const struct {
    unsigned needs;
    void (*fill)(struct attn_kernels *table);
} rows[] = {
    {0, attn_kernels_portable},
    {0, attn_kernels_portable_project},
#if defined __x86_64__
    {ATTN_HAS_AVX2, attn_kernels_avx2},
    {ATTN_HAS_AVX2, attn_kernels_avx2_project},
    {ATTN_HAS_AVX512, attn_kernels_avx512},
    {ATTN_HAS_AVX512, attn_kernels_avx512_project},
    {ATTN_HAS_AVX512 | ATTN_HAS_VNNI, attn_kernels_avx512_vnni},
    {ATTN_HAS_AVX512 | ATTN_HAS_BF16, attn_kernels_avx512_bf16},
#define NEEDS_TILES (ATTN_HAS_AVX512 | ATTN_HAS_VNNI | ATTN_HAS_BF16 | ATTN_HAS_AMX)
    {NEEDS_TILES, attn_kernels_avx512_amx},
    {NEEDS_TILES, attn_kernels_avx512_amx_matmul},
    {NEEDS_TILES, attn_kernels_avx512_amx_pairs},
#elif defined __aarch64__
    {ATTN_HAS_NEON, attn_kernels_neon},
    {ATTN_HAS_NEON, attn_kernels_neon_project},
    {ATTN_HAS_NEON | ATTN_HAS_DOTPROD, attn_kernels_neon_dotprod},
    {ATTN_HAS_NEON | ATTN_HAS_BF16, attn_kernels_neon_bf16},
#endif
};

void attn_kernels_get(struct attn_kernels *out, unsigned features)
{
    *out = (struct attn_kernels){.features = features,
                                 .name = attn_cpu_level_name(attn_cpu_level_of(features))};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((rows[i].needs & ~features) == 0)
            rows[i].fill(out);
}
