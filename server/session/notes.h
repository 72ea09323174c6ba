/* notes.h: the notes that a session adds to the file of its cache (attn_state.h): model, epoch,
 * max_length, ttl_s, and for each layer its last step, "layers.3.last", by which a retry is known
 * after an import too. */
#ifndef SRV_SESSION_NOTES_H
#define SRV_SESSION_NOTES_H

#include "attn_state.h"
#include "session/session.h"

#define SRV_NOTE_MAX 96 /* characters of a note's name or value */
#define SRV_NOTES 4     /* beside one for each layer */

struct srv_note_text {
    char name[SRV_NOTE_MAX], value[SRV_NOTE_MAX];
};

/* Fills out [SRV_NOTES + info.num_layers] and returns the number of notes. */
size_t srv_notes_print(struct srv_note_text *out, const struct srv_session *session);

/* The number that a note holds; 0 where there is no such note or it is not a number. */
uint64_t srv_notes_number(const struct attn_import *import, const char *name);

/* Fills out [info.num_layers] with the last steps of the notes, each of which ends where its layer
 * of the cache ends.  Error: malformed_state. */
enum srv_error_code srv_notes_last_steps(struct srv_last_step *out,
                                         const struct attn_import *import,
                                         const struct srv_model *model,
                                         const struct attn_cache *cache, struct srv_error *error);

#endif
