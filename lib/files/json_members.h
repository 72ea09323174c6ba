/* json_members.h: walks the members of a JSON object without building a tree of the whole.
 *
 * A tree costs up to 79 bytes of memory per byte of text, and headers of checkpoints may be 100 MB
 * long.  The walk parses one member at a time, from at most as many bytes as the caller grants it,
 * so that memory stays bounded whatever the text says.
 *
 *     attn_json_members_enter(&m);
 *     while ((status = attn_json_members_next(&key, &m)) == ATTN_OK && key != NULL)
 *         status = attn_json_members_value(&value, &m, limit);  or enter the value and walk it
 *
 * The caller has to find duplicate keys of the walked object; those inside a value are refused.
 * Every call returns ATTN_OK, ATTN_MALFORMED or ATTN_NO_MEMORY; after an error m->at says where. */
#ifndef ATTN_LIB_FILES_JSON_MEMBERS_H
#define ATTN_LIB_FILES_JSON_MEMBERS_H

#include <jansson.h>

#include "attn.h"

/* A position in a JSON text.  The walk unescapes keys in place, so the text is changed by it. */
struct attn_json_members {
    char *text; /* [length], followed by a NUL */
    size_t length;
    size_t at;  /* the next byte */
    bool fresh; /* an object has been entered and no member read yet */
};

/* Enters the object that begins here. */
enum attn_status attn_json_members_enter(struct attn_json_members *m);

/* Goes on to the next member and stops at its value's first byte.  *key lives in the text and ends
 * in a NUL; where the object has ended *key is NULL and the walk stands after the object. */
enum attn_status attn_json_members_next(char **key, struct attn_json_members *m);

/* Parses the value that begins here, from at most `limit` bytes of text, and goes past it.  *out is
 * the caller's to json_decref. */
enum attn_status attn_json_members_value(json_t **out, struct attn_json_members *m, size_t limit);

/* ATTN_OK if only white space is left, else ATTN_MALFORMED. */
enum attn_status attn_json_members_finish(struct attn_json_members *m);

#endif
