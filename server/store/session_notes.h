/* session_notes.h: what a session adds to the file of its cache (attn_state.h).
 *
 * model, epoch, max_length, ttl_s, and for each layer the last step, "layers.3.last", so that a
 * retry is known after an import too.  A file that attnd keeps for itself has in addition id, used
 * (nanoseconds since 1970), chain, and for a session made with an Idempotency-Key that and its
 * digest. */
#ifndef SRV_SESSION_NOTES_H
#define SRV_SESSION_NOTES_H

#include "attn_state.h"
#include "session/session.h"

#define SRV_NOTE_MAX 96 /* characters of a note's name or value */
#define SRV_NOTES 9     /* at most, beside one for each layer of the checkpoint */

struct srv_note_text {
    char name[SRV_NOTE_MAX], value[SRV_NOTE_MAX];
};

/* What a session is at one moment; all else that is noted of it never changes. */
struct srv_session_moment {
    const struct attn_cache *cache;
    const struct srv_last_step *last; /* [layers of the checkpoint] */
    uint64_t used_ns, chain;          /* since 1970 */
};

/* Fills out [SRV_NOTES + layers]; returns how many there are.  `own`: of a file that attnd keeps
 * for itself.  From any thread, as far as the moment's cache and last steps stay. */
size_t srv_notes_print(struct srv_note_text *out, const struct srv_session *session,
                       const struct srv_session_moment *moment, bool own);

/* The number that a note holds, 0 where there is none or it holds something else. */
uint64_t srv_notes_number(const struct attn_import *import, const char *name);

/* The digest that a note holds as 32 hexadecimal digits; false where it does not. */
bool srv_notes_digest(uint64_t out[2], const struct attn_import *import, const char *name);

/* The last steps out [layers of the checkpoint]; they end where the layers of the cache end.
 * Error: malformed_state. */
enum srv_error_code srv_notes_last_steps(struct srv_last_step *out,
                                         const struct attn_import *import,
                                         const struct srv_model *model,
                                         const struct attn_cache *cache, struct srv_error *error);

#endif
