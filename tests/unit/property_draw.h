/* property_draw.h: random layers, and random calls of one, for the property suite.
 *
 * A case is drawn in two steps: the configuration of a random model, from which the library makes a
 * layer, and then a call that the layer's specification has a meaning for.  Everything follows from
 * the seed. */
#ifndef TESTS_PROPERTY_DRAW_H
#define TESTS_PROPERTY_DRAW_H

#include "attn.h"
#include "rng.h"

#define DRAW_TOKENS 150 /* most queries, and most keys: two and a half tiles */

struct draw {
    unsigned seed;
    struct rng rng;
    char json[8192];              /* the configuration */
    size_t layer;                 /* the layer of it that is computed */
    struct attn_layer_spec spec;  /* what the configuration says of it: all but factors of RoPE */
    struct attn_attend_args call; /* inputs and modifiers; no outputs */
    struct attn_selection selection;
    bool selects, averages; /* what follows from the full map is asked for, and its mean */
    size_t top_k;
    enum attn_stage stage;
    size_t local_radius;
    void **owned; /* [num_owned] */
    size_t num_owned;
};

/* Draws the configuration of a case. */
void draw_layer(struct draw *out, unsigned seed);

/* The first field in which the layer `got` is not the drawn one, with both values; NULL if there is
 * none. */
const char *draw_differs(double *got_value, double *want_value, const struct attn_layer_spec *got,
                         const struct attn_layer_spec *want);

/* Draws a call of the layer that came of it. */
void draw_call(struct draw *d, const struct attn_layer_spec *spec);

/* Modifiers of a tree: n rows after `cached` tokens.  position_ids follow the tree's depth. */
void draw_tree(struct attn_modifiers *out, struct draw *d, const struct attn_layer_spec *spec,
               size_t cached, size_t n);

/* `count` zeroes of `size` bytes, which live as long as the case. */
void *draw_keep(struct draw *d, size_t count, size_t size);
void draw_free(struct draw *d);

/* One line about the modifiers of a call, for a person. */
void draw_describe(char *out, size_t size, const struct attn_modifiers *m);

/* The largest position of a call that RoPE turns by, plus 1. */
int64_t draw_length(const struct attn_modifiers *m, size_t count, size_t rows);

#endif
