/* json_members.h: walks the members of a JSON object without building a tree of the whole.
 *
 * A tree costs up to 79 bytes of memory per byte of text, and headers of checkpoints may be 100 MB
 * long.  The walk parses one member at a time, from at most as many bytes as the caller grants it,
 * so that memory stays bounded whatever the text says.
 *
 *     attn_json_members_enter(&m);
 *     while ((key = attn_json_members_next(&m)) != NULL)
 *         value = attn_json_members_value(&m, limit);  or enter the value and walk it
 *     attn_json_members_finish(&m);
 *
 * The caller has to find duplicate keys of the walked object; those inside a value are refused.
 * An error stays: m->status is ATTN_MALFORMED, which the caller may set too, or ATTN_NO_MEMORY,
 * m->at says where, and every further call does nothing. */
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
    enum attn_status status;
};

/* Enters the object that begins here. */
void attn_json_members_enter(struct attn_json_members *m);

/* Goes on to the next member and stops at its value's first byte.  The key lives in the text and
 * ends in a NUL; NULL where the object has ended, after which the walk stands then. */
char *attn_json_members_next(struct attn_json_members *m);

/* Parses the value that begins here, from at most `limit` bytes of text, and goes past it.  The
 * value is the caller's to json_decref; NULL after an error. */
json_t *attn_json_members_value(struct attn_json_members *m, size_t limit);

/* Only white space may be left. */
void attn_json_members_finish(struct attn_json_members *m);

#endif
