/* salvage.h: sessions from the files that earlier starts have set aside.
 *
 * A start loads no session of which something is missing, and ends the journals where they had not
 * been flushed.  What it leaves out stands in *.damaged.  Salvaging reads these files alone and
 * keeps of each session the part before what is missing: a state that the session had at some time,
 * not its last one. */
#ifndef SRV_SALVAGE_H
#define SRV_SALVAGE_H

#include "base/buffer.h"
#include "session/models.h"
#include "session/session.h"

#define SRV_SALVAGE_MESSAGE 512
#define SRV_SALVAGE_DIRECTORY "salvaged" /* in the state directory */

/* A session that a start serves, with the number of its next record. */
struct srv_salvage_served {
    uint64_t epoch, next_record;
};

struct srv_salvage_context {
    int directory;                 /* the state directory, locked */
    struct srv_sessions *sessions; /* an empty table, whose pool can hold all of them */
    const struct srv_models *models;
    size_t max_sessions;
    const struct srv_salvage_served *served; /* [num_served] in ascending order of epochs */
    size_t num_served;
};

struct srv_salvage {
    size_t saved;   /* sessions, as files */
    size_t unsaved; /* nothing is left of them, or their model is not configured */
};

/* Writes each session that is not served with as many records to "salvaged/<epoch>.safetensors", as
 * GET /sessions/{id}/state sends it; a file of that name is replaced.  Appends a line for each to
 * `text`.  False with one line in `message` where a file cannot be read or written, or the sessions
 * cannot be held. */
bool srv_salvage(struct srv_salvage *out, struct srv_buffer *text,
                 const struct srv_salvage_context *context, char message[SRV_SALVAGE_MESSAGE]);

#endif
