/* relative.c: the disentangled position bias of a unit's scores against one tile.
 *
 * The distances of 64 queries and 64 keys have at most 127 rows x, and fewer where rows hold many
 * distances.  So two products are made for each tile, q.Kr_x of all queries and k.Qr_x of all keys,
 * of the rows in question only; each score then picks its two numbers.  Rows are independent of
 * each other in both, as everywhere. */
#include "attention/unit.h"

/* The rows of one pass, [first, end). */
struct rows {
    size_t first, end;
};

/* Queries, scaled, times keys made of rows: [R][ATTN_RELATIVE_ROWS]. */
static void multiply_queries(const struct attn_unit *u, struct rows rows)
{
    const struct attn_relative *relative = u->p->relative;
    const size_t d = u->p->head_dim, ldq = attn_query_stride(u->p);
    for (size_t x = rows.first; x < rows.end; x += ATTN_TILE) {
        const size_t tile = u->h0 * relative->tiles + x / ATTN_TILE;
        u->kernels->matmul[ATTN_F32](
            &(struct attn_matmul){.c = u->relative.by_query + (x - rows.first),
                                  .ldc = ATTN_RELATIVE_ROWS,
                                  .a = u->relative.q,
                                  .lda = ldq,
                                  .b = relative->keys + tile * d * ATTN_TILE,
                                  .ldb = ATTN_TILE,
                                  .rows = u->rows,
                                  .k = d,
                                  .n = ATTN_TILE});
    }
}

/* Queries made of rows, scaled, times the keys of the tile: [rows][ATTN_TILE]. */
static void multiply_keys(const struct attn_unit *u, const struct attn_unit_tile *part,
                          struct rows rows)
{
    const struct attn_relative *relative = u->p->relative;
    const struct attn_tile *tile = &part->tile;
    const size_t d = u->p->head_dim, ldq = attn_query_stride(u->p);
    const size_t panel = attn_tile_panel(tile->dtype);
    for (size_t x = rows.first; x < rows.end; x += ATTN_TILE) {
        const size_t count = attn_min(ATTN_TILE, rows.end - x);
        for (size_t i = 0; i < count; i++)
            u->kernels->scale(u->relative.rows + i * ldq,
                              relative->queries + (u->h0 * relative->rows + x + i) * d, u->p->scale,
                              d);
        if (tile->dtype == ATTN_INT8)
            u->kernels->prepare_rows(u->relative.rows, ldq, u->relative.prepared, NULL, count, d);
        for (size_t j = 0; j < part->count; j += panel)
            u->kernels->matmul[tile->dtype](&(struct attn_matmul){
                .c = u->relative.by_key + (x - rows.first) * ATTN_TILE + j,
                .ldc = ATTN_TILE,
                .a = u->relative.rows,
                .lda = ldq,
                .b = (const char *)tile->k + j * attn_tile_key_bytes(tile->dtype, d),
                .ldb = panel,
                .rows = count,
                .k = d,
                .n = attn_tile_width(tile->dtype, part->count, j),
                .scale = tile->k_scale ? tile->k_scale + j : NULL,
                .prepared = u->relative.prepared});
    }
}

/* Adds to each score the products of its row, where the pass has that row. */
static void pick(const struct attn_unit *u, size_t first, size_t count, struct rows rows)
{
    const struct attn_relative *relative = u->p->relative;
    const struct attn_mask *mask = &u->p->mask;
    for (size_t r = 0; r < u->rows; r++) {
        const int64_t query = attn_mask_query_position(mask, attn_unit_token(u, r));
        const float *by_query = u->relative.by_query + r * ATTN_RELATIVE_ROWS;
        for (size_t j = 0; j < count; j++) {
            const size_t x =
                attn_relative_row(relative, query - attn_mask_key_position(mask, first + j)) -
                rows.first;
            float *score = u->scores + r * ATTN_TILE + j;
            if (x >= rows.end - rows.first)
                continue;
            *score += relative->keys != NULL ? by_query[x] : 0;
            *score += relative->queries != NULL ? u->relative.by_key[x * ATTN_TILE + j] : 0;
        }
    }
}

void attn_unit_add_relative(const struct attn_unit *u, const struct attn_unit_tile *part,
                            size_t first)
{
    const struct attn_mask *mask = &u->p->mask;
    int64_t query[2] = {INT64_MAX, INT64_MIN}, key[2] = {INT64_MAX, INT64_MIN};
    for (size_t r = 0; r < u->rows; r++) {
        const int64_t at = attn_mask_query_position(mask, attn_unit_token(u, r));
        query[0] = at < query[0] ? at : query[0];
        query[1] = at > query[1] ? at : query[1];
    }
    for (size_t j = 0; j < part->count; j++) {
        const int64_t at = attn_mask_key_position(mask, first + j);
        key[0] = at < key[0] ? at : key[0];
        key[1] = at > key[1] ? at : key[1];
    }
    const size_t end = attn_relative_row(u->p->relative, query[1] - key[0]) + 1;
    struct rows rows = {
        attn_relative_row(u->p->relative, query[0] - key[1]) / ATTN_TILE * ATTN_TILE, 0};
    for (; rows.first < end; rows.first += ATTN_RELATIVE_ROWS) {
        rows.end = attn_min(rows.first + ATTN_RELATIVE_ROWS, end);
        if (u->p->relative->keys != NULL)
            multiply_queries(u, rows);
        if (u->p->relative->queries != NULL)
            multiply_keys(u, part, rows);
        pick(u, first, part->count, rows);
    }
}
