/* gguf_config.h: the keys of a GGUF file as the config.json of the checkpoint that it was made
 * from.
 *
 * Source: the writers of llama.cpp (conversion/, gguf-py/gguf/constants.py) and its src/models. */
#ifndef ATTN_LIB_FILES_GGUF_CONFIG_H
#define ATTN_LIB_FILES_GGUF_CONFIG_H

#include <limits.h>

#include "files/gguf.h"

#define ATTN_GGUF_MAX_CONFIG 65536 /* bytes; two lists of RoPE's factors take half of them */

/* A tensor of a layer's attention; ".weight" or ".bias" follows on both sides. */
struct attn_gguf_name {
    const char *file, *hf;
};

#define ATTN_GGUF_WINDOW_NEEDED UINT_MAX

struct attn_gguf_architecture {
    const char *name, *model_type;
    const char *module, *member;        /* Hugging Face's, before and after the layer's number */
    const struct attn_gguf_name *names; /* up to one of NULL */
    const char *members;                /* members of the configuration beside the sizes */
    const char *more_types;  /* of checkpoints that become such files too, with blanks between */
    const char *other_type;  /* model_type where layers slide, or experts are chosen by sigmoids */
    unsigned period, window; /* of layers that slide, all but every n-th: where no key says so;
                                * a window of 0: then none slides */
    const char *full;        /* members for where none slides, as JSON; NULL: none */
    const char *yarn;        /* the same of rope_scaling with YaRN */
    bool permuted;           /* rows of queries and keys pair as neighbours, not as halves */
    bool plus_one;           /* norms are stored with 1 added */
    bool encoder;            /* not causal */
    bool rope_if_finetuned;  /* no RoPE where rope.scaling.finetuned is false */
};

struct attn_gguf_config {
    const struct attn_gguf_architecture *architecture;
    char *text; /* [ATTN_GGUF_MAX_CONFIG], ends in a NUL; to be freed by attn_free */
    size_t length;
    size_t head_dim;
    size_t latent_heads, latent_key, latent_value; /* heads of kv_b_proj, rows of each; 0: none */
};

/* Reads the keys of the first split, and of tensors those of all splits.
 * Errors: ATTN_MALFORMED (a key is missing or of another kind), ATTN_OUT_OF_RANGE,
 * ATTN_UNSUPPORTED (the architecture), ATTN_NO_MEMORY; those of reading a tensor of RoPE's
 * factors. */
enum attn_status attn_gguf_config(struct attn_gguf_config *out, struct attn_gguf *const *splits,
                                  size_t num_splits, struct attn_error *error);

#endif
