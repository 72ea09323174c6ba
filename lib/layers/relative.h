/* relative.h: the tables of a disentangled position bias (He et al. 2021, DeBERTa), and of relative
 * keys (Shaw et al. 2018), which are the simpler half of it.
 *
 * A distance i - j of query i and key j has a row x, 0 <= x < 2S: with buckets, distances up to
 * S/2 have a row each and longer ones share rows on a logarithmic scale up to max_distance;
 * without, each has its own up to S.  The bias of a score is scale (q_i.Kr_x + k_j.Qr_x), where Kr
 * and Qr are what the layer's key and query projections, or maps of their own, make of the rows of
 * a learned table.  Relative keys are Kr as it is, the same for all heads. */
#ifndef ATTN_LIB_LAYERS_RELATIVE_H
#define ATTN_LIB_LAYERS_RELATIVE_H

#include "attn.h"
#include "layers/linear.h"

struct attn_relative {
    size_t rows;    /* 2S, or those of the table of relative keys; 0: the layer has no such bias */
    size_t tiles;   /* ceil(rows / 64) */
    int64_t reach;  /* longer distances have the rows of reach and -reach */
    int32_t *row;   /* [2*reach + 1] by i - j + reach; ascends */
    float *keys;    /* Kr [H][tiles][D][64], zeroes beyond the last row; NULL without */
    float *queries; /* Qr [H][rows][D]; NULL without */
};

/* The rows of distances of a checked specification, 0 where the bias is of another type. */
size_t attn_relative_rows(const struct attn_layer_spec *spec);

/* Floats of the tables of a checked specification, rows of distances included. */
size_t attn_relative_floats(const struct attn_layer_spec *spec);

/* Checks what such a bias asks of the rest of a layer.  Errors: ATTN_OUT_OF_RANGE,
 * ATTN_UNSUPPORTED. */
enum attn_status attn_relative_check(const struct attn_layer_spec *spec, struct attn_error *error);

/* Builds the tables layer->relative of layer->bias_table, which is normalised in place by the norm
 * that it has; all zero where the bias is of another type.  q and k are not packed yet.
 * Cost: 2 rows E H D multiply-adds.  The tables are valid for fini also after an error.
 * Errors: ATTN_OUT_OF_RANGE (a number beyond ATTN_MAX_MAGNITUDE), ATTN_NO_MEMORY. */
struct attn_layer;
enum attn_status attn_relative_init(struct attn_layer *layer, struct attn_error *error);

/* Makes the rows of distances alone: as attn_relative_init leaves *out, without the tables.  False
 * where memory is short. */
bool attn_relative_shape(struct attn_relative *out, const struct attn_layer_spec *spec);
void attn_relative_fini(struct attn_relative *relative);

/* The row of a distance i - j. */
static inline size_t attn_relative_row(const struct attn_relative *relative, int64_t distance)
{
    const int64_t reach = relative->reach;
    distance = distance < -reach ? -reach : distance > reach ? reach : distance;
    return (size_t)relative->row[distance + reach];
}

#endif
