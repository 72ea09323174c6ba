/* reference.h: weightless attention by the formula of attn.h, one score at a time, in double;
 * answers of /attend are compared with it. */
#ifndef TESTS_HTTP_REFERENCE_H
#define TESTS_HTTP_REFERENCE_H

#include <stddef.h>

struct reference {
    size_t batch, heads, kv_heads, queries, keys, head_dim, value_dim; /* B H G T S D Dv */
    const float *query;                                                /* [B][H][T][D] */
    const float *key;                                                  /* [B][G][S][D] */
    const float *value;                                                /* [B][G][S][Dv] */
    double scale;
    /* Returns what is added to a scaled score; -INFINITY forbids the key.  `context` is passed
     * on. */
    double (*bias)(const void *context, size_t b, size_t h, size_t t, size_t s);
    /* Returns what multiplies the weights of a head. */
    double (*gate)(const void *context, size_t h);
    const void *context;
    /* Results. */
    float *output;  /* [B][H][T][Dv] */
    float *weights; /* [B][H][T][S] */
    float *lse;     /* [B][H][T] */
};

/* Computes the results into memory of their own; reference_free frees it. */
void reference_compute(struct reference *reference);
void reference_free(struct reference *reference);

#endif
