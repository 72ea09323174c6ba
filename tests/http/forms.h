/* forms.h: the forms of a call, for suites that ask the same of all: a layer over its own rows, a
 * batch of them, over other rows, without a layer, a prefill, a step, an item of a list.
 *
 * The rows of a form are always the same and its steps are never committed, so calls of a form can
 * be compared with each other. */
#ifndef TESTS_HTTP_FORMS_H
#define TESTS_HTTP_FORMS_H

#include "client.h"
#include "text.h"

enum {
    FORM_SELF,
    FORM_BATCH,
    FORM_CROSS,
    FORM_WEIGHTLESS,
    FORM_PREFILL,
    FORM_DECODE,
    FORM_ITEM,
    FORM_COUNT
};

struct form {
    const char *name;
    size_t batch;             /* B; 0: replies have no batch dimension */
    size_t heads, rows, keys; /* H, T, S */
    size_t cached;            /* of the keys: the first row stands at this position */
    bool causal;
};
extern const struct form forms[FORM_COUNT];

/* Makes the session that prefill, decode and item continue; the daemon has CONFIG_SMALL's
 * models. */
void forms_begin(struct client *client);

/* form_body writes the body of form `i` with further members, "" or beginning with a comma;
 * form_path returns where to send it. */
void form_body(struct text *body, int i, const char *extra);
const char *form_path(int i);

/* POSTs form `i` with further members, "" or beginning with a comma. */
struct answer form_post(struct client *client, int i, const char *extra);

/* form_expect is form_post that must succeed.  form_refuse must be refused with this code word, in
 * a list as the item's error, and frees the answer. */
struct answer form_expect(struct client *client, int i, const char *extra);
void form_refuse(struct client *client, int i, const char *extra, long status, const char *code);

/* Returns the object that holds the outputs. */
const json_t *form_reply(const struct answer *answer, int i);

#endif
