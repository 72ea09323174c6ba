/* clock.c: the clocks of stores, by which sessions expire, also over a restart. */
#include "base/clock.h"
#include "session/table.h"

uint64_t srv_sessions_clock(const struct srv_sessions *sessions, unsigned store)
{
    return srv_now_ns() + sessions->clock_offset[store];
}

void srv_sessions_set_clock(struct srv_sessions *sessions, unsigned store, uint64_t now_ns)
{
    sessions->clock_offset[store] = now_ns - srv_now_ns();
}

uint64_t srv_session_used(const struct srv_sessions *sessions, const struct srv_session *session)
{
    uint64_t now = srv_now_ns(), used = session->used_ns;
    return (now > used ? used : now) + sessions->clock_offset[session->store];
}

void srv_session_set_used(const struct srv_sessions *sessions, struct srv_session *session,
                          uint64_t used_ns)
{
    uint64_t now = srv_now_ns(), clock = now + sessions->clock_offset[session->store];
    uint64_t idle = clock > used_ns ? clock - used_ns : 0;
    session->used_ns = now > idle ? now - idle : 0;
}
