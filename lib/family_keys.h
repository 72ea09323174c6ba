/* family_keys.h: the words in which lists of configuration keys are written.
 *
 *     SIZE("hidden_size", hidden_size, most)    integer from 1 on, into that field of the settings
 *     NUMBER("rope_theta", rope_theta, 1, 1e12) number in a range
 *     FLAG("bias", bias)                        true or false
 *     ROPE("rope_scaling")                      object of the keys in attn_rope_keys
 *     FIXED("sliding_window", "null")           only this JSON value is computed
 *     HARMLESS("n_ctx")                         does not touch attention
 *     END                                       ends every list
 */
#ifndef ATTN_LIB_FAMILY_KEYS_H
#define ATTN_LIB_FAMILY_KEYS_H

#include "family.h"

#define FIELD(key, what, field, least, most)                                                      \
    {                                                                                             \
        .name = key, .kind = what, .offset = offsetof(struct attn_settings, field), .min = least, \
        .max = most                                                                               \
    }
#define SIZE(key, field, most) FIELD(key, ATTN_KEY_SIZE, field, 1, most)
#define NUMBER(key, field, least, most) FIELD(key, ATTN_KEY_NUMBER, field, least, most)
#define FLAG(key, field) FIELD(key, ATTN_KEY_FLAG, field, 0, 1)
#define ROPE(key) FIELD(key, ATTN_KEY_ROPE, rope_type, 0, 0)
#define FIXED(key, value)                                  \
    {                                                      \
        .name = key, .kind = ATTN_KEY_FIXED, .only = value \
    }
#define HARMLESS(key)                          \
    {                                          \
        .name = key, .kind = ATTN_KEY_HARMLESS \
    }
#define END          \
    {                \
        .name = NULL \
    }

#define MAX_POSITION 2147483647
#define MAX_THETA 1e12
#define MAX_SEED 9007199254740992 /* 2^53: what JSON numbers carry everywhere */

#endif
