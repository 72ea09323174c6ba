/* held.c: a few copies for each caller; the proxy's lock guards them. */
#include "held.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define HELD 8 /* of each caller */

static struct held {
    size_t number;
    struct raw_answer request;
} held[PROXY_CALLERS][HELD]; /* [count] in the order in which they came */
static size_t count[PROXY_CALLERS];

static char *copy(const char *bytes, size_t length)
{
    char *to = malloc(length + 1);
    ck_assert_ptr_nonnull(to);
    memcpy(to, bytes, length);
    to[length] = '\0';
    return to;
}

static struct raw_answer remove_at(unsigned caller, size_t i)
{
    struct raw_answer request = held[caller][i].request;
    count[caller]--;
    memmove(&held[caller][i], &held[caller][i + 1], (count[caller] - i) * sizeof held[caller][i]);
    return request;
}

void held_add(unsigned caller, size_t number, const struct raw_answer *request, unsigned random)
{
    if (count[caller] == HELD) {
        struct raw_answer dropped = remove_at(caller, random % HELD);
        raw_answer_free(&dropped);
    }
    held[caller][count[caller]++] =
        (struct held){number,
                      {.head = copy(request->head, strlen(request->head)),
                       .body = copy(request->length > 0 ? request->body : "", request->length),
                       .length = request->length}};
}

bool held_take(struct raw_answer *out, bool *in_order, unsigned caller, size_t number,
               unsigned random)
{
    size_t older = 0;
    while (older < count[caller] && held[caller][older].number < number)
        older++;
    if (older == 0)
        return false;
    *in_order = random % older == 0;
    *out = remove_at(caller, random % older);
    return true;
}

void held_drop_all(void)
{
    for (unsigned caller = 0; caller < PROXY_CALLERS; caller++)
        while (count[caller] > 0) {
            struct raw_answer dropped = remove_at(caller, 0);
            raw_answer_free(&dropped);
        }
}

size_t held_count(const char *text, const char *word)
{
    size_t found = 0;
    for (const char *at = text; at != NULL && (at = strstr(at, word)) != NULL; at += strlen(word))
        found++;
    return found;
}

/* A step over encoder rows appends nothing, and may be repeated at any time. */
static bool repeats_freely(const struct raw_answer *request)
{
    return held_count(request->body, "\"model\":\"crossed\"") > 0;
}

void held_judge(struct proxy_figures *figures, const struct raw_answer *request,
                const struct raw_answer *reply)
{
    const bool is_fork = held_count(request->head, "/fork HTTP") > 0,
               starts = held_count(request->body, "\"start\":true") > 0,
               steps = held_count(request->head, "POST /decode ") > 0 && !starts;
    const size_t replayed = held_count(reply->body, "\"replayed\":true"),
                 errors = held_count(reply->body, "\"error\":{"),
                 items = held_count(reply->body, "\"session_id\":");
    const bool refused = reply->status == 404 || reply->status == 409,
               done = reply->status == 200 || reply->status == 201 || reply->status == 204;
    if (done && steps)
        figures->applied += repeats_freely(request) ? 0 : items - errors - replayed;
    else if (done && (is_fork || starts))
        figures->begun += replayed == 0;
    else
        figures->applied += !refused && replayed == 0;
}
