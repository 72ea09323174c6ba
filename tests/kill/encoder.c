/* encoder.c: sessions over encoder rows, by number: from each follow its id and rows. */
#include "encoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tensors.h"

#define ROWS 200 /* of the encoder: records of several pieces */
#define LIVE 6   /* sessions that are kept */

/* Sessions [deleted, answered) are live; that of number `answered`, and for `deleting` the first
 * one, may or may not be there. */
static unsigned answered, deleted;
static bool deleting;

static void add_rows(struct text *body, const char *name, unsigned seed, size_t rows)
{
    float x[ROWS * TINY];
    make_numbers(x, rows * TINY, seed);
    text_add(body, ",\"%s\":", name);
    text_floats(body, x, 9, SHAPE(rows, TINY));
}

/* The start of a session, or, without an id, the same attention without one. */
static void write_start(struct text *body, unsigned number, bool session)
{
    text_add(body, "{\"model\":\"crossed\",\"layer\":1");
    if (session)
        text_add(body, ",\"session_id\":\"e%u\",\"start\":true", number);
    add_rows(body, "hidden_states", 1, 1);
    add_rows(body, "encoder_hidden_states", number + 1000, ROWS);
    text_add(body, "}");
}

static bool post(struct answer *answer, struct client *client, const char *path, struct text *body)
{
    const struct request request = {.method = "POST", .path = path, .body = body->data};
    bool came = client_try(answer, client, &request);
    text_free(body);
    if (!came)
        answer_free(answer);
    return came;
}

static bool start_next(struct client *client)
{
    struct text body = {0};
    struct answer answer;
    write_start(&body, answered, true);
    if (!post(&answer, client, "/decode", &body))
        return false;
    expect_answer(&answer, 200, NULL, "a start over encoder rows");
    answer_free(&answer);
    answered++;
    return true;
}

static bool delete_first(struct client *client)
{
    char path[32];
    struct answer answer;
    snprintf(path, sizeof path, "/sessions/e%u", deleted);
    deleting = true;
    bool came = client_try(&answer, client, &(struct request){.method = "DELETE", .path = path});
    answer_free(&answer);
    if (came) {
        deleting = false;
        deleted++;
    }
    return came;
}

void *encoder_call(void *served)
{
    struct client client;
    client_open(&client, served);
    bool came = true;
    while (came && start_next(&client))
        while (came && answered - deleted > LIVE) /* each verification adds one */
            came = delete_first(&client);
    client_close(&client);
    return NULL;
}

/* Whether the answer is that of a request that brings the encoder's rows. */
static bool is_right(struct client *client, const struct answer *answer, unsigned number)
{
    struct text body = {0};
    struct answer want;
    bool right = answer->status == 200;
    write_start(&body, number, false);
    if (!right || !post(&want, client, "/attend", &body))
        return false;
    float *a = tensor_of(answer->json, "output", SHAPE(1, TINY));
    float *b = tensor_of(want.json, "output", SHAPE(1, TINY));
    for (size_t i = 0; i < TINY; i++)
        right = right && fabsf(a[i] - b[i]) < 1e-5F;
    free(a);
    free(b);
    answer_free(&want);
    return right;
}

size_t encoder_verify(size_t *compared, struct client *client)
{
    size_t wrong = 0;
    for (unsigned i = deleted; i <= answered; i++) {
        bool unsure = i == answered || (deleting && i == deleted);
        struct text body = {0};
        struct answer answer;
        write_start(&body, i, true);
        if (!post(&answer, client, "/decode", &body))
            return wrong + 1;
        bool replayed = json_is_true(json_object_get(answer.json, "replayed"));
        wrong += !is_right(client, &answer, i) || !(replayed || unsure);
        (*compared)++;
        answer_free(&answer);
    }
    answered++; /* the last one is there now */
    deleting = false;
    return wrong;
}
