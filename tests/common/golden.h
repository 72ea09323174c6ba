/* golden.h: the vectors of tests/golden and tests/reference as one kind of case, whichever
 * framework or script made a vector.
 *
 * Hugging Face, PyTorch and ONNX disagree on what a boolean mask means, where causality is anchored
 * and how tensors are laid out.  Loading translates each vector into the terms of attn.h, so that
 * the library test and the HTTP test run the same list. */
#ifndef TESTS_GOLDEN_H
#define TESTS_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct golden_case {
    char name[600];  /* "llama_gqa/layer0_leftpad" */
    char model[256]; /* "llama_gqa", "t5.encoder" of several stacks, "" where weightless */
    char path[600];  /* "tests/golden/llama_gqa/model" */
    char stack[16];  /* "encoder", "decoder", "cross", "" where there is only one */
    size_t layer;
    size_t source; /* the layer whose keys and values that layer reads, SIZE_MAX: none */
    size_t batch, queries, keys; /* B, T, S */
    size_t past; /* of the keys, given as past_key (ONNX); what is expected of all of them: */
    float *present_key, *present_value;          /* [B][G][S][..] */
    size_t heads, kv_heads, head_dim, value_dim; /* H, G, D, Dv */
    size_t hidden, key_size, value_size;         /* E and the widths of keys' and values' rows */
    bool cross, decodes;
    bool prefix;    /* tokens of a prefix see each other in both directions; they are the prefill */
    bool grows;     /* step by step the results differ: keys stay rotated as they were cached */
    int causal;     /* -1: the model's; 0, 1 */
    double scale;   /* 0: the default */
    double softcap; /* 0: none */
    bool windowed;
    int64_t left, right; /* where windowed; -1 = open */
    double tolerance;
    size_t columns; /* W of the expected weights */
    size_t prefill; /* tokens of the prefill before single steps */
    /* Inputs; NULL where the case has none.  Without value_states, key_states serve as both. */
    float *hidden_states;             /* [B][T][E] */
    float *key_states, *value_states; /* [B][S][..] */
    float *query, *key, *value;       /* [B][H][T][D], [B][G][S][D], [B][G][S][Dv] */
    uint8_t *padding;                 /* [B][S] 1 = real */
    uint8_t *mask;                    /* [B][H][T][S] 1 = may attend */
    float *bias;                      /* [B][H][T][S] */
    int64_t *positions;               /* [B][T] */
    size_t grid[2];                   /* rows and columns of patches; 0: none */
    int64_t *offsets;                 /* [B] */
    /* Expected values; NULL where the case has none. */
    float *output;                  /* [B][T][E]; weightless [B][H][T][Dv] */
    float *weights;                 /* [B][H][T][W] */
    float *average;                 /* [B][T][W] */
    float *scores;                  /* [B][H][T][S] */
    int stage;                      /* of the scores: 0 raw, 1 softcap, 2 masked */
    float *key_cache, *value_cache; /* [B][G][S][D], [B][G][S][Dv] */
    float *decode_output;           /* [B][T][E] */
    uint8_t *compare_rows;          /* [B][T] 1 = compared; NULL: all are */
};

struct golden_set {
    struct golden_case *cases;
    size_t count;
};

/* Loads every folder of tests/golden and tests/reference.  Prints and exits on a broken file: the
 * vectors are part of the project. */
void golden_load(struct golden_set *set);
void golden_free(struct golden_set *set);

/* Returns compare_rows repeated for all heads, [B][H][T], the caller's to free; NULL where all rows
 * count. */
uint8_t *golden_rows_per_head(const struct golden_case *c);

/* Returns the largest |got - want| / max(1, |want|) over [rows][width], infinite where a value is
 * NaN; *worst receives its index.  Row r counts where rows_wanted is NULL or rows_wanted[r] is
 * true. */
double golden_error(size_t *worst, const float *got, const float *want, size_t rows, size_t width,
                    const uint8_t *rows_wanted);

#endif
