/* v2_words.c: the words of errors below /v2.
 *
 * The call that an infer request means is read, checked and computed as one of /attend, whose
 * errors name its fields.  A field that has another name here gets that name. */
#include "wire/v2.h"

#include <ctype.h>
#include <stdio.h>

static const struct {
    const char *param; /* a field of /attend, or NULL */
    const char *text;  /* as messages have it: `start` is a word of English too */
    const char *here;
} words[] = {
    {"session_id", "session_id", "sequence_id"},
    {"start", "`start`", "sequence_start"},
    {"binary_output", "binary_output", "binary_data_output"},
    {NULL, "use model", "the path names the model"},
};
#define WORDS (sizeof words / sizeof words[0])

#define TEXT_MAX 256
_Static_assert(sizeof((struct srv_error *)0)->message <= TEXT_MAX, "a message fits");

/* Whether a character ends a word.  What is quoted is the client's own. */
static bool is_end(char c) { return !isalnum((unsigned char)c) && strchr("_-.\"'", c) == NULL; }

/* The row whose text stands at `at`, between characters that end a word; WORDS: none. */
static size_t find_word(const char *text, size_t at)
{
    size_t i = 0;
    for (; i < WORDS; i++) {
        size_t length = strlen(words[i].text);
        char after = text[at + strnlen(text + at, length)];
        if (strncmp(text + at, words[i].text, length) == 0 && (at == 0 || is_end(text[at - 1])) &&
            (after == '\0' || is_end(after)))
            break;
    }
    return i;
}

/* Rewords a text of up to `size` bytes. */
static void reword(char *text, size_t size)
{
    char out[TEXT_MAX];
    size_t used = 0;
    for (size_t at = 0; text[at] != '\0' && used + 1 < sizeof out;) {
        size_t i = find_word(text, at);
        if (i == WORDS) {
            out[used++] = text[at++];
            continue;
        }
        int length = snprintf(out + used, sizeof out - used, "%s", words[i].here);
        used += (size_t)length < sizeof out - used ? (size_t)length : sizeof out - used - 1;
        at += strlen(words[i].text);
    }
    out[used] = '\0';
    snprintf(text, size, "%s", out);
}

void srv_v2_reword_error(struct srv_error *error)
{
    reword(error->message, sizeof error->message);
    for (size_t i = 0; i < WORDS; i++)
        if (words[i].param != NULL && strcmp(error->param, words[i].param) == 0)
            snprintf(error->param, sizeof error->param, "%s", words[i].here);
}

bool srv_v2_fail_unknown(struct srv_json *json, const char *what, const char *name,
                         const char *const *names, size_t count)
{
    char why[SRV_HINT_MAX];
    srv_field_hint(why, what, name, names, count);
    reword(why, sizeof why);
    srv_fail(json->error, SRV_E_UNKNOWN_FIELD, name, "%s %s", name, why);
    return false;
}
