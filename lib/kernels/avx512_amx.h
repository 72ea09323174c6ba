/* avx512_amx.h: the tile registers of AMX, for the files of that level.
 *
 * A thread has eight tiles, here of 16 rows of 64 bytes each.  A kernel configures them when it
 * begins and releases them when it ends. */
#ifndef ATTN_LIB_KERNELS_AVX512_AMX_H
#define ATTN_LIB_KERNELS_AVX512_AMX_H

#include "kernels/avx512.h"

#define TILE_ROWS 16 /* also columns of float32 */
#define ROW_BYTES 64

/* The compiler's own intrinsics do not say that they read and write memory.  Strides are bytes. */
#define TILE_LOAD(tile, from, stride)                                                      \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"((size_t)(stride)) \
                     : "memory")
#define TILE_STORE(tile, to, stride)                                                         \
    __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"((size_t)(stride)) \
                     : "memory")
#define TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define TILE_MULTIPLY(instruction, sum, x, w) \
    __asm__ volatile(instruction " %%tmm" #w ", %%tmm" #x ", %%tmm" #sum ::)

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

INLINE void configure_tiles_avx512amx(void)
{
    static const struct tile_config config = {.palette = 1,
                                              .row_bytes = {ROW_BYTES, ROW_BYTES, ROW_BYTES,
                                                            ROW_BYTES, ROW_BYTES, ROW_BYTES,
                                                            ROW_BYTES, ROW_BYTES},
                                              .rows = {TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS,
                                                       TILE_ROWS, TILE_ROWS, TILE_ROWS, TILE_ROWS}};
    __asm__ volatile("ldtilecfg %0" ::"m"(config));
}

/* Leaves no state: a thread without tiles is cheaper to switch. */
INLINE void release_tiles_avx512amx(void) { __asm__ volatile("tilerelease" ::); }

#endif
