/* twin.c: a session against its twin, which got the same rows undisturbed, and against the
 * library's own cache. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "caller.h"

#define LAST 2   /* steps of each layer that settle() makes */
#define PREFIX 8 /* bytes of a safetensors file before its header */

static void create_twin(struct caller *caller, const struct mirror *twin)
{
    struct text body = {0};
    text_add(&body, "{\"session_id\":\"%s\",", twin->id);
    if (mirror_model(twin) != NULL)
        text_add(&body, "\"model\":\"%s\"}", mirror_model(twin));
    else
        text_add(&body, "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":4}");
    expect_posted(&caller->direct, "/sessions", body.data, 201, NULL);
    text_free(&body);
}

static void step_twin(struct caller *caller, const struct mirror *twin, size_t layer,
                      struct text *step)
{
    struct text body = {0};
    mirror_text_open(&body, twin, layer);
    text_add(&body, "%s}", step->data);
    expect_posted(&caller->direct, "/decode", body.data, 200, NULL);
    text_free(&body);
    text_free(step);
}

/* How many rows from `begin` on have seeds that count up, so that one request has them; without
 * weights one. */
static size_t together(const struct session *session, size_t layer, size_t begin, size_t end)
{
    const unsigned *seeds = session->seeds[layer];
    size_t n = 1;
    while (session->mirror.kind != MIRROR_WEIGHTLESS && n < 49 && begin + n < end &&
           seeds[begin + n] == seeds[begin] + n)
        n++;
    return n;
}

/* Steps the twin to `end` rows of a layer. */
static void step_twin_to(struct caller *caller, const struct session *session,
                         const struct mirror *twin, size_t layer, size_t begin, size_t end)
{
    for (size_t i = begin, piece; i < end; i += piece) {
        struct text step = {0};
        char extra[64];
        piece = together(session, layer, i, end);
        snprintf(extra, sizeof extra, ",\"position\":%zu", i);
        if (session->mirror.kind == MIRROR_WEIGHTLESS)
            mirror_text_step(&step, twin, session->seeds[layer][i], extra);
        else
            text_steps(&step, twin->id, session->seeds[layer][i], piece, extra);
        step_twin(caller, twin, layer, &step);
    }
}

/* Creates the twin: the same rows, and the last steps of each layer as requests of their own, as
 * the session had them. */
static void make_twin(struct caller *caller, const struct session *session, const char *id)
{
    const struct mirror *mirror = &session->mirror;
    struct mirror twin = *mirror;
    snprintf(twin.id, sizeof twin.id, "%s", id);
    create_twin(caller, &twin);
    for (size_t left = LAST + 1; left-- > 0;)
        for (size_t layer = 0; layer < mirror_layers(mirror); layer++) {
            size_t end = mirror_length(mirror, layer) - left;
            step_twin_to(caller, session, &twin, layer, left < LAST ? end - 1 : 0, end);
        }
}

/* Steps each layer, so that each has a last step, which a truncation or a fork may have dropped.
 * What the first layer keeps for a second that reads it depends on how far behind the second was,
 * which therefore catches up before, and on how many rows the second's last step had, for which
 * each is stepped once more. */
static void settle(struct caller *caller, struct session *session)
{
    const struct mirror *mirror = &session->mirror;
    while (mirror->kind == MIRROR_READING && mirror_takes(mirror, 1) && !session->broken)
        caller_step(caller, session, 1);
    for (size_t i = 0; i < LAST; i++)
        for (size_t layer = 0; layer < mirror_layers(mirror) && !session->broken; layer++)
            caller_step(caller, session, layer);
}

/* Splits an exported state into data and header; the notes that differ between sessions (epoch,
 * checksum) are removed.  NULL where there is no state. */
static json_t *split(const char **data, size_t *bytes, const struct answer *state)
{
    uint64_t length;
    *data = "";
    *bytes = 0;
    if (state->status != 200 || state->length <= PREFIX)
        return NULL;
    memcpy(&length, state->text, PREFIX);
    ck_assert_uint_le(length, state->length - PREFIX);
    json_t *header = json_loadb(state->text + PREFIX, length, JSON_REJECT_DUPLICATES, NULL);
    json_t *notes = json_object_get(header, "__metadata__");
    ck_assert_int_eq(json_object_del(notes, "epoch"), 0);
    ck_assert_int_eq(json_object_del(notes, "checksum"), 0);
    *data = state->text + PREFIX + length;
    *bytes = state->length - PREFIX - length;
    return header;
}

static struct answer export(struct caller *caller, const char *id)
{
    char path[64];
    snprintf(path, sizeof path, "/sessions/%s/state", id);
    return client_get(&caller->direct, path);
}

static void compare_with_twin(struct caller *caller, const struct session *session)
{
    char twin[40];
    const char *a, *b;
    size_t a_bytes, b_bytes;
    const struct mirror *mirror = &session->mirror;
    snprintf(twin, sizeof twin, "twin-%s", mirror->id);
    make_twin(caller, session, twin);
    struct answer got = export(caller, mirror->id), want = export(caller, twin);
    json_t *x = split(&a, &a_bytes, &got), *y = split(&b, &b_bytes, &want);
    const bool same = x != NULL && json_equal(x, y) && a_bytes == b_bytes &&
                      memcmp(a, b, a_bytes) == 0 && mirror_holds(mirror, a, a_bytes);
    if (!same && caller_sends_revisions)
        fprintf(stderr, "retry: %s, of kind %u, with %zu and %zu tokens, is not as its twin\n",
                mirror->id, (unsigned)mirror->kind, mirror_length(mirror, 0),
                mirror_length(mirror, 1));
    caller->differing += !same;
    json_decref(x);
    json_decref(y);
    answer_free(&got);
    answer_free(&want);
    call_delete(&caller->direct, twin);
}

void caller_compare(struct caller *caller, struct session *session)
{
    const struct mirror *mirror = &session->mirror;
    settle(caller, session);
    if (!session->broken) {
        compare_with_twin(caller, session);
        caller->compared[mirror->kind]++;
    }
    caller->held_rows += mirror_length(mirror, 0) + mirror_length(mirror, 1);
    caller_delete(caller, session);
}
