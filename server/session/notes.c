/* notes.c: numbers and last steps as notes, and back.
 *
 * A last step is left out where its layer ends elsewhere: no retry can repeat it. */
#include "session/notes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "session/models.h"

/* ---- Printing -------------------------------------------------------------------------------- */

/* "12 1 0123...": position, rows, and the digest of the step. */
static void print_last(char out[SRV_NOTE_MAX], const struct srv_last_step *last)
{
    snprintf(out, SRV_NOTE_MAX, "%zu %zu %016llx%016llx", last->position, last->rows,
             (unsigned long long)last->digest[0], (unsigned long long)last->digest[1]);
}

static void print_last_name(char out[SRV_NOTE_MAX], size_t layer)
{
    snprintf(out, SRV_NOTE_MAX, "layers.%zu.last", layer);
}

static size_t note_number(struct srv_note_text *out, const char *name, uint64_t number)
{
    snprintf(out->name, SRV_NOTE_MAX, "%s", name);
    snprintf(out->value, SRV_NOTE_MAX, "%llu", (unsigned long long)number);
    return 1;
}

size_t srv_notes_print(struct srv_note_text *out, const struct srv_session *session)
{
    size_t count = note_number(out, "epoch", session->epoch);
    count += note_number(out + count, "max_length", attn_cache_max_length(session->cache));
    count += note_number(out + count, "ttl_s", session->ttl_ns / SRV_S_NS);
    snprintf(out[count].name, SRV_NOTE_MAX, "model");
    snprintf(out[count++].value, SRV_NOTE_MAX, "%s", session->model->name);
    for (size_t i = 0; i < session->model->info.num_layers; i++) {
        const struct srv_last_step *last = &session->last_steps[i];
        if (last->rows == 0 || last->position + last->rows != attn_cache_length(session->cache, i))
            continue;
        print_last_name(out[count].name, i);
        print_last(out[count++].value, last);
    }
    return count;
}

/* ---- Reading --------------------------------------------------------------------------------- */

uint64_t srv_notes_number(const struct attn_import *import, const char *name)
{
    const char *text = attn_import_note(import, name);
    return text != NULL && text[0] >= '1' && text[0] <= '9' ? strtoull(text, NULL, 10) : 0;
}

/* Reads exactly what print_last prints. */
static bool read_last(struct srv_last_step *out, const char *text)
{
    char again[SRV_NOTE_MAX];
    unsigned long long digest[2];
    if (sscanf(text, "%zu %zu %16llx%16llx", &out->position, &out->rows, &digest[0], &digest[1]) !=
        4)
        return false;
    out->digest[0] = digest[0];
    out->digest[1] = digest[1];
    print_last(again, out);
    return strcmp(again, text) == 0;
}

enum srv_error_code srv_notes_last_steps(struct srv_last_step *out,
                                         const struct attn_import *import,
                                         const struct srv_model *model,
                                         const struct attn_cache *cache, struct srv_error *error)
{
    char name[SRV_NOTE_MAX];
    for (size_t i = 0; i < model->info.num_layers; i++) {
        struct srv_last_step *last = &out[i];
        *last = (struct srv_last_step){0};
        print_last_name(name, i);
        const char *text = attn_import_note(import, name);
        size_t length = attn_cache_length(cache, i);
        if (text != NULL && (!read_last(last, text) || last->rows == 0 || last->rows > length ||
                             last->position != length - last->rows))
            return srv_fail(error, SRV_E_MALFORMED_STATE, name,
                            "%s is not the step that ends at %zu", name, length);
    }
    return SRV_OK;
}
