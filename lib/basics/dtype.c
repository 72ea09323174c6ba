/* dtype.c: number formats: their names, and what may be kept in each. */
#include <string.h>

#include "attn.h"

static const struct {
    const char *name;
    bool of_weights, of_caches;
} dtypes[] = {
    [ATTN_F32] = {"f32", true, true},      [ATTN_BF16] = {"bf16", true, true},
    [ATTN_F16] = {"f16", false, true},     [ATTN_INT8] = {"int8", true, true},
    [ATTN_W8A16] = {"w8a16", true, false},
};
#define NUM_DTYPES (sizeof dtypes / sizeof dtypes[0])

const char *attn_dtype_name(enum attn_dtype dtype)
{
    return (size_t)dtype < NUM_DTYPES ? dtypes[dtype].name : "unknown";
}

bool attn_dtype_find(enum attn_dtype *out, const char *name)
{
    for (size_t i = 0; i < NUM_DTYPES; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            *out = (enum attn_dtype)i;
            return true;
        }
    return false;
}

bool attn_dtype_of_weights(enum attn_dtype dtype)
{
    return (size_t)dtype < NUM_DTYPES && dtypes[dtype].of_weights;
}

bool attn_dtype_of_caches(enum attn_dtype dtype)
{
    return (size_t)dtype < NUM_DTYPES && dtypes[dtype].of_caches;
}
