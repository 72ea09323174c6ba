/* dtype.c: the names of number formats. */
#include <string.h>

#include "attn.h"

static const char *const names[] = {
    [ATTN_F32] = "f32",   [ATTN_BF16] = "bf16",   [ATTN_F16] = "f16",
    [ATTN_INT8] = "int8", [ATTN_W8A16] = "w8a16",
};
#define NUM_NAMES (sizeof names / sizeof names[0])

const char *attn_dtype_name(enum attn_dtype dtype)
{
    size_t i = (size_t)dtype;
    return i < NUM_NAMES ? names[i] : "unknown";
}

bool attn_dtype_find(enum attn_dtype *out, const char *name)
{
    for (size_t i = 0; i < NUM_NAMES; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (enum attn_dtype)i;
            return true;
        }
    return false;
}
