/* json_members.h: walks the members of a JSON object without building a tree of the whole.
 *
 * A tree costs up to 79 bytes of memory per byte of text, and headers of checkpoints may be 100 MB
 * long.  Here one member at a time is parsed, from at most as many bytes as the caller grants it,
 * so memory stays bounded whatever the text says.
 *
 *     attn_json_members_enter(&m);
 *     while ((status = attn_json_members_next(&key, &m)) == ATTN_OK && key != NULL)
 *         status = attn_json_members_value(&value, &m, limit);  or enter the value likewise
 *
 * Duplicate keys of the walked object are for the caller to find; those inside a value are
 * refused.  Only ATTN_OK, ATTN_MALFORMED and ATTN_NO_MEMORY are returned; m->at then says where. */
#ifndef ATTN_LIB_JSON_MEMBERS_H
#define ATTN_LIB_JSON_MEMBERS_H

#include <jansson.h>

#include "attn.h"

/* Keys are unescaped in place as the walk passes them, so the text is not what it was after. */
struct attn_json_members {
    char *text; /* [length], followed by a NUL */
    size_t length;
    size_t at;  /* the byte that is looked at next */
    bool fresh; /* an object has been entered and no member read yet */
};

/* Enters the object that begins here. */
enum attn_status attn_json_members_enter(struct attn_json_members *m);

/* Passes to the next member and stands on its value's first byte; *key, which lives in the text and
 * ends in a NUL, is NULL where the object has ended, and the walk is behind it. */
enum attn_status attn_json_members_next(char **key, struct attn_json_members *m);

/* Parses the value that begins here and passes it: at most `limit` bytes of text. *out is the
 * caller's to json_decref. */
enum attn_status attn_json_members_value(json_t **out, struct attn_json_members *m, size_t limit);

/* ATTN_OK if nothing but white space is left. */
enum attn_status attn_json_members_finish(struct attn_json_members *m);

#endif
