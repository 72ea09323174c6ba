/* tile.c: tokens into and out of a tile. */
#include "tile.h"

#include <string.h>

void attn_tile_put_value(float *v_tile, size_t slot, const float *value, size_t dv)
{
    for (size_t j = 0, width; j < dv; j += width) {
        width = attn_tile_width(dv, j);
        memcpy(v_tile + j * ATTN_TILE + slot * width, value + j, width * sizeof(float));
    }
}

void attn_tile_put(float *k_tile, float *v_tile, size_t slot, const float *key, const float *value,
                   size_t d, size_t dv)
{
    for (size_t i = 0; i < d; i++)
        k_tile[i * ATTN_TILE + slot] = key[i];
    attn_tile_put_value(v_tile, slot, value, dv);
}

void attn_tile_get(float *key, float *value, const float *k_tile, const float *v_tile, size_t slot,
                   size_t d, size_t dv)
{
    if (key != NULL)
        for (size_t i = 0; i < d; i++)
            key[i] = k_tile[i * ATTN_TILE + slot];
    for (size_t j = 0, width; value != NULL && j < dv; j += width) {
        width = attn_tile_width(dv, j);
        memcpy(value + j, v_tile + j * ATTN_TILE + slot * width, width * sizeof(float));
    }
}
