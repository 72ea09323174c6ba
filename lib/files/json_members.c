/* json_members.c: a cursor over the members of a JSON object.
 *
 * jansson parses each key and value; the punctuation between them ({ , : } and white space) is
 * parsed here. */
#include "files/json_members.h"

#include <string.h>

#include "attn_json.h"
#include "basics/mem.h"

#define TREE_TEXT 65536 /* bytes of a value that is no string */
#define KEY_TEXT 4096   /* bytes of a key as written: 512 characters, each escaped, and quotes */

static void skip_space(struct attn_json_members *m)
{
    while (m->at < m->length && memchr(" \t\n\r", m->text[m->at], 4) != NULL)
        m->at++;
}

/* Skips white space and then `mark`, if that is the next character. */
static bool accept(struct attn_json_members *m, char mark)
{
    skip_space(m);
    if (m->at == m->length || m->text[m->at] != mark)
        return false;
    m->at++;
    return true;
}

/* The walk ends here where the text lacks what it has to have. */
static void require(struct attn_json_members *m, bool there)
{
    if (m->status == ATTN_OK && !there)
        m->status = ATTN_MALFORMED;
}

void attn_json_members_enter(struct attn_json_members *m)
{
    m->fresh = true;
    require(m, m->status != ATTN_OK || accept(m, '{'));
}

char *attn_json_members_next(struct attn_json_members *m)
{
    const bool fresh = m->fresh;
    m->fresh = false;
    if (m->status != ATTN_OK || accept(m, '}'))
        return NULL;
    require(m, fresh || accept(m, ','));
    skip_space(m);
    char *key = m->text + m->at;
    json_t *name = attn_json_members_value(m, KEY_TEXT);
    if (name == NULL)
        return NULL;
    require(m, json_is_string(name) && accept(m, ':'));
    if (m->status == ATTN_OK) {
        /* Unescaping never lengthens, and the quotes leave room for the NUL. */
        memcpy(key, json_string_value(name), json_string_length(name) + 1);
        skip_space(m);
    }
    json_decref(name);
    return m->status == ATTN_OK ? key : NULL;
}

/* The length of the text to parse.  A string is measured up to its end, since memory is held in
 * proportion to the length; for any other value the bound is TREE_TEXT. */
static size_t value_text(const struct attn_json_members *m, size_t limit)
{
    const char *text = m->text + m->at;
    size_t most = attn_min(limit, m->length - m->at), length = 1;
    if (most == 0 || text[0] != '"')
        return attn_min(most, TREE_TEXT);
    while (length < most && text[length] != '"')
        length += text[length] == '\\' ? 2 : 1;
    return attn_min(length + 1, most);
}

json_t *attn_json_members_value(struct attn_json_members *m, size_t limit)
{
    const size_t flags = JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK;
    json_error_t why;
    json_t *value = NULL;
    if (m->status != ATTN_OK)
        return NULL;
    skip_space(m);
    m->status = attn_json_load(&value, m->text + m->at, value_text(m, limit), flags, &why);
    if (m->status == ATTN_OK)
        m->at += (size_t)why.position;
    return value;
}

void attn_json_members_finish(struct attn_json_members *m)
{
    if (m->status == ATTN_OK)
        skip_space(m);
    require(m, m->at == m->length);
}
