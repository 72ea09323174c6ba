/* record.h: a daemon works on a state directory, its operations are recorded, and with them what
 * its sessions were after each answer.
 *
 * A record has no pointers, so that it can be mapped from a file and a state be repeated. */
#ifndef TESTS_POWER_RECORD_H
#define TESTS_POWER_RECORD_H

#include "client.h"
#include "log.h"

#define RECORD_REQUESTS 2048
#define RECORD_SESSIONS 64 /* ids, which are used again */
#define RECORD_SNAPSHOTS 256
#define RECORD_IDEMPOTENT 512

enum power_mode { MODE_ALWAYS, MODE_EVERYSEC, MODE_OS, MODE_SNAPSHOT, POWER_MODES };

extern const char *const power_mode_names[POWER_MODES];

/* A moment is a number of entries of the log. */
struct record {
    uint32_t mode;
    uint64_t seed;
    uint64_t starts[2]; /* moments before a start; nothing of interest is before the first */
    size_t requests, snapshots, idempotent;
    size_t failed; /* snapshots */
    bool whole;    /* replayed, the log makes the directory that the daemon left */
    struct record_request {
        char what[16];
        uint64_t sent_at, answered_at, answered_ns;
    } request[RECORD_REQUESTS + 1]; /* from 1 */
    /* Of each session at first and after each request: a digest of GET .../state; 0: none. */
    uint64_t digest[RECORD_REQUESTS + 1][RECORD_SESSIONS];
    /* With durability `snapshot`: asked for after request `first`, seen complete after `last`. */
    struct record_snapshot {
        uint64_t asked_at, complete_at;
        size_t first, last;
    } snapshot[RECORD_SNAPSHOTS];
    /* Requests that made a session, and had an idempotency key. */
    struct record_idempotent {
        size_t request, session;
        int64_t epoch;
        char key[24], path[48], body[96];
    } idempotents[RECORD_IDEMPOTENT];
};

/* Sessions of the last ids expire after a second, and may be missing at any later time. */
#define RECORD_FADING 3
static inline bool record_fades(size_t session)
{
    return session >= RECORD_SESSIONS - RECORD_FADING;
}

/* Sessions of the first ids are made at the beginning and stay as they are: later sections of a
 * manifest say nothing of them, and their slots stay theirs. */
#define RECORD_IDLE 34

void record_id(char out[16], size_t session);

/* The number of the session with that id, or RECORD_SESSIONS. */
size_t record_session(const char *id);

/* Digest of the session's state and revision; 0 where there is no such session. */
uint64_t record_digest(struct client *client, size_t session);

/* Arguments of a daemon with this durability; `directory` must outlive them. */
#define RECORD_ARGUMENTS 16
void record_arguments(const char *out[RECORD_ARGUMENTS], enum power_mode mode,
                      const char *directory);

struct record_plan {
    enum power_mode mode;
    uint64_t seed;
    unsigned seconds;
    bool kills;            /* the end in the middle is a SIGKILL, not a SIGTERM */
    bool fails;            /* a flush fails now and then, but none of a journal */
    const char *recorder;  /* path of recorder.so */
    const char *log_path;  /* of the log's file, which is mapped as `log` */
    const char *directory; /* of the state */
};

/* Runs a daemon under random requests, with a restart in the middle.  Where the directory exists,
 * the daemon goes on with what is in it, which counts as synced. */
void record_make(struct record *out, struct power_log *log, const struct record_plan *plan);

#endif
