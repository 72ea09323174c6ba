/* session_clock.c: the clock of the table, by which sessions expire, also over a restart. */
#include "base/clock.h"
#include "session/session_table.h"

uint64_t srv_sessions_clock(const struct srv_sessions *sessions)
{
    return srv_now_ns() + sessions->clock_offset;
}

void srv_sessions_set_clock(struct srv_sessions *sessions, uint64_t now_ns)
{
    sessions->clock_offset = now_ns - srv_now_ns();
}

uint64_t srv_session_used(const struct srv_sessions *sessions, const struct srv_session *session)
{
    uint64_t now = srv_now_ns(), used = session->used_ns;
    return (now > used ? used : now) + sessions->clock_offset;
}

void srv_session_set_used(const struct srv_sessions *sessions, struct srv_session *session,
                          uint64_t used_ns)
{
    uint64_t now = srv_now_ns(), clock = now + sessions->clock_offset;
    uint64_t idle = clock > used_ns ? clock - used_ns : 0;
    session->used_ns = now > idle ? now - idle : 0;
}
