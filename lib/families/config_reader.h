/* config_reader.h: what config.c and config_lists.c read keys with. */
#ifndef ATTN_LIB_FAMILIES_CONFIG_READER_H
#define ATTN_LIB_FAMILIES_CONFIG_READER_H

#include <jansson.h>

#include "families/config.h"
#include "families/spec.h"

struct attn_reader {
    struct attn_resolution r;
    bool is_set[sizeof(struct attn_hf_config)];
    const char *ignored; /* names of keys that are passed over, with blanks between */
    size_t base;         /* of offsets in r.hf: 0, or the RoPE object that is being read */
    bool typed_rope;     /* an object of RoPE for each type of layers has been read */
};

/* Refusals of a key: its value is no such thing as `wanted`; contradicts another key; is not
 * supported; or is out of the key's range.  All return false but the last, where it is in range. */
bool attn_refuse_type(struct attn_reader *reader, const char *key, const char *wanted);
bool attn_refuse_contradiction(struct attn_reader *reader, const char *key);
bool attn_refuse_value(struct attn_reader *reader, const char *key, const json_t *value);
bool attn_check_range(struct attn_reader *reader, const struct attn_hf_key *key, double value);

/* Fills a field.  One that another key has filled must keep its value. */
bool attn_set_field(struct attn_reader *reader, const struct attn_hf_key *key, const void *value);

/* Read a key's value into the configuration; false where it is refused.  attn_read_list reads lists
 * of one element a layer, or of factors; the others are by the kinds of their names. */
bool attn_read_size(struct attn_reader *reader, const struct attn_hf_key *key, const json_t *value);
bool attn_read_list(struct attn_reader *reader, const struct attn_hf_key *key, const json_t *value);
bool attn_read_cross_layers(struct attn_reader *reader, const struct attn_hf_key *key,
                            const json_t *value);
bool attn_read_runs(struct attn_reader *reader, const struct attn_hf_key *key, const json_t *value);
bool attn_read_letters(struct attn_reader *reader, const struct attn_hf_key *key,
                       const json_t *value);
bool attn_read_blocks(struct attn_reader *reader, const struct attn_hf_key *key,
                      const json_t *value);
bool attn_read_terms(struct attn_reader *reader, const struct attn_hf_key *key,
                     const json_t *value);
bool attn_read_windows(struct attn_reader *reader, const struct attn_hf_key *key,
                       const json_t *value);

#endif
