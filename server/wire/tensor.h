/* tensor.h: a tensor of a request, in the one form that all wire forms are read into. */
#ifndef SRV_TENSOR_H
#define SRV_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/bounds.h"

enum srv_tensor_kind {
    SRV_FLOATS,         /* finite numbers -> float32, rounded to nearest */
    SRV_FLOATS_OR_NULL, /* likewise, and null -> -infinity (attention_bias) */
    SRV_BOOLS,          /* true, false, 1, 0 -> uint8_t */
    SRV_INTEGERS,       /* integers -> int64_t */
};

/* Bytes of an element in memory. */
static inline size_t srv_tensor_element_bytes(enum srv_tensor_kind kind)
{
    return kind == SRV_BOOLS      ? sizeof(uint8_t)
           : kind == SRV_INTEGERS ? sizeof(int64_t)
                                  : sizeof(float);
}

struct srv_tensor {
    bool present;
    enum srv_tensor_kind kind;
    unsigned rank;                 /* 0 for a bare number, where a field allows one */
    size_t shape[SRV_TENSOR_RANK]; /* [rank] */
    size_t count;                  /* product of shape */
    union {
        float *f32;
        uint8_t *u8;
        int64_t *i64;
        void *data;
    }; /* [count], row-major, in the request's arena or in its body */
};

#endif
