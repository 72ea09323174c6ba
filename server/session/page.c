/* page.c: lists of sessions: all of them, and page by page. */
#include <stdlib.h>
#include <string.h>

#include "session/table.h"

bool srv_sessions_all(struct srv_session ***out, size_t *count, struct srv_sessions *sessions)
{
    size_t found = 0;
    pthread_mutex_lock(&sessions->lock);
    struct srv_session **list = malloc((sessions->count + 1) * sizeof(struct srv_session *));
    for (size_t i = 0; list != NULL && i < sessions->num_buckets; i++)
        for (struct srv_session *s = sessions->buckets[i]; s != NULL; s = s->next) {
            s->references++;
            list[found++] = s;
        }
    pthread_mutex_unlock(&sessions->lock);
    *out = list;
    *count = found;
    return list != NULL;
}

size_t srv_sessions_count(const struct srv_sessions *sessions) { return sessions->count; }

size_t srv_sessions_count_of(struct srv_sessions *sessions, size_t index)
{
    return atomic_load(srv_sessions_counter(sessions, index));
}

/* The order of the list: by id, and those of one id by owner. */
static int compare(const struct srv_session *a, const struct srv_session *b)
{
    int order = strcmp(a->id, b->id);
    return order != 0 ? order : strcmp(a->owner, b->owner);
}

/* Restores the heap below `i`, in which no session comes before its two children. */
static void sift_down(struct srv_session *heap[], size_t size, size_t i)
{
    for (size_t child = 2 * i + 1; child < size; child = 2 * i + 1) {
        if (child + 1 < size && compare(heap[child + 1], heap[child]) > 0)
            child++;
        if (compare(heap[i], heap[child]) >= 0)
            return;
        struct srv_session *swap = heap[i];
        heap[i] = heap[child];
        heap[child] = swap;
        i = child;
    }
}

/* Keeps the `size` first sessions seen so far in out[0..*held): in any order until `out` is full,
 * then as a heap whose root is the last. */
static void keep_first(struct srv_session *out[], size_t size, size_t *held,
                       struct srv_session *session)
{
    if (*held < size) {
        out[(*held)++] = session;
        for (size_t i = *held == size ? size / 2 : 0; i-- > 0;)
            sift_down(out, size, i);
    } else if (compare(session, out[0]) < 0) {
        out[0] = session;
        sift_down(out, size, 0);
    }
}

static int by_place(const void *a, const void *b)
{
    return compare(*(struct srv_session *const *)a, *(struct srv_session *const *)b);
}

static bool is_after(const struct srv_session *session, const char *id, const char *owner)
{
    int order = strcmp(session->id, id);
    return order > 0 || (order == 0 && owner != NULL && strcmp(session->owner, owner) > 0);
}

size_t srv_sessions_page(struct srv_session *out[], size_t size, struct srv_sessions *sessions,
                         const char *after, const char *owner)
{
    size_t held = 0;
    pthread_mutex_lock(&sessions->lock);
    for (size_t i = 0; i < sessions->num_buckets && size > 0; i++) {
        for (struct srv_session *s = sessions->buckets[i]; s != NULL; s = s->next) {
            if (is_after(s, after, owner))
                keep_first(out, size, &held, s);
        }
    }
    for (size_t i = 0; i < held; i++)
        out[i]->references++;
    pthread_mutex_unlock(&sessions->lock);
    qsort(out, held, sizeof out[0], by_place);
    return held;
}

bool srv_session_is_elsewhere(struct srv_sessions *sessions, const struct srv_session *session)
{
    bool found = false;
    pthread_mutex_lock(&sessions->lock);
    for (size_t i = 0; i < sessions->num_buckets && !found; i++)
        for (const struct srv_session *s = sessions->buckets[i]; s != NULL && !found; s = s->next)
            found = strcmp(s->id, session->id) == 0 && s->store != session->store;
    pthread_mutex_unlock(&sessions->lock);
    return found;
}
