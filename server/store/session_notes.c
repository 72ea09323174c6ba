/* session_notes.c: numbers, digests and last steps as notes, and back.
 *
 * A last step is left out where its layer ends elsewhere: no retry can repeat it. */
#include "store/session_notes.h"

#include <errno.h>
#include <inttypes.h>
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

static size_t note_text(struct srv_note_text *out, const char *name, const char *text)
{
    snprintf(out->name, SRV_NOTE_MAX, "%s", name);
    snprintf(out->value, SRV_NOTE_MAX, "%s", text);
    return 1;
}

static size_t note_number(struct srv_note_text *out, const char *name, uint64_t number)
{
    snprintf(out->name, SRV_NOTE_MAX, "%s", name);
    snprintf(out->value, SRV_NOTE_MAX, "%llu", (unsigned long long)number);
    return 1;
}

/* "12 0 0": the number, the one before, and the length. */
static size_t note_revision(struct srv_note_text *out, const struct srv_revision *revision)
{
    snprintf(out->name, SRV_NOTE_MAX, "revision");
    snprintf(out->value, SRV_NOTE_MAX, "%" PRIu64 " %" PRIu64 " %" PRIu64, revision->number,
             revision->before, revision->length);
    return 1;
}

static size_t note_own(struct srv_note_text *out, const struct srv_session *session,
                       const struct srv_session_moment *moment)
{
    size_t count = note_text(out, "id", session->id);
    count += note_number(out + count, "used", moment->used_ns);
    count += note_number(out + count, "chain", moment->next_record);
    count += note_revision(out + count, &moment->revision);
    if (session->owner[0] != '\0')
        count += note_text(out + count, "owner", session->owner);
    if (session->group[0] != '\0')
        count += note_text(out + count, "group", session->group);
    if (session->shared)
        count += note_number(out + count, "shared", 1);
    if (session->idempotency_key[0] == '\0')
        return count;
    count += note_text(out + count, "key", session->idempotency_key);
    snprintf(out[count].name, SRV_NOTE_MAX, "key_digest");
    snprintf(out[count++].value, SRV_NOTE_MAX, "%016llx%016llx",
             (unsigned long long)session->key_digest[0],
             (unsigned long long)session->key_digest[1]);
    return count;
}

size_t srv_notes_print(struct srv_note_text *out, const struct srv_session *session,
                       const struct srv_session_moment *moment, bool own)
{
    size_t count = note_number(out, "epoch", session->epoch);
    count += note_number(out + count, "max_length", attn_cache_max_length(moment->cache));
    count += note_number(out + count, "ttl_s", session->ttl_ns / SRV_S_NS);
    count += note_text(out + count, "model", session->model->name);
    if (own)
        count += note_own(out + count, session, moment);
    for (size_t i = 0; i < session->model->info.num_layers; i++) {
        const struct srv_last_step *last = &moment->last_steps[i];
        if (last->rows == 0 || last->position + last->rows != attn_cache_length(moment->cache, i))
            continue;
        print_last_name(out[count].name, i);
        print_last(out[count++].value, last);
    }
    return count;
}

struct attn_export *srv_notes_open_export(const struct srv_session *session,
                                          const struct srv_session_moment *moment, bool own)
{
    struct attn_export *export = NULL;
    struct attn_error cause = {.status = ATTN_NO_MEMORY};
    size_t most = SRV_NOTES + session->model->info.num_layers;
    struct srv_note_text *texts = malloc(most * sizeof *texts);
    struct attn_note *notes = malloc(most * sizeof *notes);
    if (texts != NULL && notes != NULL) {
        size_t count = srv_notes_print(texts, session, moment, own);
        for (size_t i = 0; i < count; i++)
            notes[i] = (struct attn_note){texts[i].name, texts[i].value};
        cause.status = attn_export_open(&export, moment->cache, notes, count, &cause);
    }
    free(texts);
    free(notes);
    errno = cause.status == ATTN_NO_MEMORY ? ENOMEM : EOVERFLOW;
    return cause.status == ATTN_OK ? export : NULL;
}

/* ---- Reading --------------------------------------------------------------------------------- */

uint64_t srv_notes_number(const struct attn_import *import, const char *name)
{
    const char *text = attn_import_note(import, name);
    return text != NULL && text[0] >= '1' && text[0] <= '9' ? strtoull(text, NULL, 10) : 0;
}

/* Reads exactly what note_revision prints. */
bool srv_notes_revision(struct srv_revision *out, const struct attn_import *import)
{
    struct srv_note_text again;
    const char *text = attn_import_note(import, "revision");
    *out = (struct srv_revision){0};
    if (text == NULL || sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, &out->number, &out->before,
                               &out->length) != 3)
        return false;
    note_revision(&again, out);
    return strcmp(again.value, text) == 0 && srv_revision_possible(out);
}

bool srv_notes_digest(uint64_t out[2], const struct attn_import *import, const char *name)
{
    unsigned long long digest[2];
    const char *text = attn_import_note(import, name);
    if (text == NULL || strlen(text) != 32 || strspn(text, "0123456789abcdef") != 32 ||
        sscanf(text, "%16llx%16llx", &digest[0], &digest[1]) != 2)
        return false;
    out[0] = digest[0];
    out[1] = digest[1];
    return true;
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
