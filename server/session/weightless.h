/* weightless.h: the models of weightless sessions, one for each shape that a live session has.
 *
 * A weightless session keeps keys and values that its caller projects.  Its model is made with the
 * first session of its shape, and freed with the last; max_weightless_shapes bounds how many there
 * are.  Sessions of one shape share a model, so that steps over them are computed in one batch.
 *
 * The name of such a model says its shape, so that journals, session files and states need nothing
 * else to make it again: "weightless:H,G,D,Dv,L,kv_dtype,scale,softcap,window", scale and softcap
 * being the bits of a float32 in hexadecimal.  No configured model can have a colon in its name.
 *
 * Calls are for any thread. */
#ifndef SRV_WEIGHTLESS_H
#define SRV_WEIGHTLESS_H

#include "attn_limits.h"
#include "session/models.h"

/* Bounds of a shape, beside those of attn_model.h. */
#define SRV_WEIGHTLESS_LAYERS 256
#define SRV_WEIGHTLESS_WIDTH 65536 /* num_attention_heads times head_dim, or value_head_dim */

/* Layers of all weightless sessions together, in proportion to max_sessions: each takes memory of
 * its session, used or not. */
#define SRV_WEIGHTLESS_MEAN_LAYERS 8

#define SRV_WEIGHTLESS_INDEX SIZE_MAX /* srv_model.index of all of them */

/* The table; max_weightless_shapes 0: there are no weightless sessions.  The limits must outlive
 * the table.  False where memory is short. */
struct srv_weightless;
bool srv_weightless_open(struct srv_weightless **out, const struct srv_limits *limits,
                         unsigned threads);
void srv_weightless_close(struct srv_weightless *weightless); /* no session may be left */

/* Sessions will take blocks from that pool.  Called before the first srv_weightless_get. */
void srv_weightless_set_pool(struct srv_weightless *weightless, struct attn_cache_pool *pool);

/* The model of a shape, with a reference of the caller's: srv_model_put.  Sizes that are 0 have the
 * defaults of attn_model_open_weightless; scale and softcap are rounded to float32.
 * Errors: invalid_value, session_limit, unsupported (max_weightless_shapes is 0),
 * out_of_memory. */
enum srv_error_code srv_weightless_get(const struct srv_model **out,
                                       struct srv_weightless *weightless,
                                       const struct attn_weightless_options *options,
                                       struct srv_error *error);

/* The model of that name with a reference of the caller's, which a configured model does not need:
 * srv_models_find where the name is none of a weightless model.  Errors: those of both, and
 * model_not_found where the name says no shape. */
enum srv_error_code srv_models_get(const struct srv_model **out, const struct srv_models *models,
                                   const char *name, struct srv_error *error);

/* Adds a reference that counts so many layers, those of a session or 0; false where they would be
 * too many.  `drop` gives such a reference back, `put` one of no layers.  For a configured model,
 * and NULL, nothing is done. */
bool srv_model_hold(const struct srv_model *model, size_t layers);
void srv_model_drop(const struct srv_model *model, size_t layers);
void srv_model_put(const struct srv_model *model);

/* The shapes that live sessions have. */
size_t srv_weightless_count(struct srv_weightless *weightless);

/* The memory of weightless sessions, at most, of whatever shapes: of an empty cache of so many
 * layers, the mean of max_sessions; of the smallest block, of 64 tokens of a layer, and of a batch
 * of steps. */
struct srv_weightless_memory {
    size_t cache_bytes, layers, block_bytes, tile_bytes, batch_bytes;
};
void srv_weightless_memory(struct srv_weightless_memory *out, unsigned threads);

#endif
