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

static bool is_after(const struct srv_session *session, const char *id, const char *owner)
{
    int order = strcmp(session->id, id);
    return order > 0 || (order == 0 && owner != NULL && strcmp(session->owner, owner) > 0);
}

/* Puts a session in its place among the first `size` ones so far, out[0..count), or leaves it out;
 * returns how many there are then. */
static size_t keep_first(struct srv_session *out[], size_t count, size_t size,
                         struct srv_session *session)
{
    size_t place = 0, end = count;
    while (place < end) {
        size_t middle = (place + end) / 2;
        if (compare(out[middle], session) < 0)
            place = middle + 1;
        else
            end = middle;
    }
    if (place == size)
        return count;
    count += count < size;
    memmove(out + place + 1, out + place, (count - place - 1) * sizeof(struct srv_session *));
    out[place] = session;
    return count;
}

size_t srv_sessions_page(struct srv_session *out[], size_t size, struct srv_sessions *sessions,
                         const char *after, const char *owner)
{
    size_t count = 0;
    pthread_mutex_lock(&sessions->lock);
    for (size_t i = 0; i < sessions->num_buckets; i++)
        for (struct srv_session *s = sessions->buckets[i]; s != NULL; s = s->next)
            if (is_after(s, after, owner))
                count = keep_first(out, count, size, s);
    for (size_t i = 0; i < count; i++)
        out[i]->references++;
    pthread_mutex_unlock(&sessions->lock);
    return count;
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
