/* revision.c: drawing revisions, knowing a truncation again, and the revisions of sessions. */
#include "session/revision.h"

#include <sys/random.h>

#include "session/models.h"
#include "session/table.h"

/* Random bits are never those of the revision that is left, and 0 is none. */
bool srv_revision_draw(struct srv_revision *out, const struct srv_revision *now, uint64_t length)
{
    uint64_t number = 0, present = now != NULL ? now->number : 0;
    while (number == 0 || number == present) {
        if (getrandom(&number, sizeof number, 0) != sizeof number)
            return false;
        number &= SRV_REVISION_MAX;
    }
    *out = (struct srv_revision){.number = number, .before = present, .length = length};
    return true;
}

bool srv_revision_possible(const struct srv_revision *revision)
{
    return revision->number != 0 && revision->number <= SRV_REVISION_MAX &&
           revision->before <= SRV_REVISION_MAX;
}

bool srv_revision_repeats(const struct srv_revision *now, uint64_t number, uint64_t length)
{
    return number != 0 && number == now->before && length == now->length;
}

/* ---- Of sessions ----------------------------------------------------------------------------- */

struct srv_revision srv_session_revision(const struct srv_session *session)
{
    return (struct srv_revision){session->revision, session->revision_before,
                                 session->truncated_to};
}

void srv_session_set_revision(struct srv_session *session, const struct srv_revision *revision)
{
    session->revision = revision->number;
    session->revision_before = revision->before;
    session->truncated_to = revision->length;
}

size_t srv_session_longest(const struct srv_session *session)
{
    size_t longest = 0;
    for (size_t i = 0; i < session->model->info.num_layers; i++) {
        size_t length = attn_cache_length(session->cache, i);
        longest = length > longest ? length : longest;
    }
    return longest;
}

enum srv_error_code srv_session_fail_revision(const struct srv_session *session, uint64_t named,
                                              size_t length, struct srv_error *error)
{
    const uint64_t present = session->revision;
    if (named != 0)
        srv_fail(error, SRV_E_REVISION_MISMATCH, "revision",
                 "revision is %llu, the session's is %llu", (unsigned long long)named,
                 (unsigned long long)present);
    else
        srv_fail(error, SRV_E_REVISION_MISMATCH, "start",
                 "the session was truncated since it started: its revision is %llu",
                 (unsigned long long)present);
    error->has_length = true; /* after srv_fail, which clears the record */
    error->length = (uint32_t)length;
    error->epoch = session->epoch;
    error->revision = present;
    return error->code;
}
