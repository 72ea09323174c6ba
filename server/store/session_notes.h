/* session_notes.h: the notes that a session adds to the file of its cache (attn_state.h).
 *
 * Every file has the notes model, epoch, max_length, ttl_s, and for each layer its last step,
 * "layers.3.last", by which a retry is known after an import too.  A file of the state directory
 * also has id, used (by the table's clock), chain, revision; owner, group and shared ("1") where
 * the session has them; and for a session that was made with an Idempotency-Key the notes key and
 * key_digest. */
#ifndef SRV_SESSION_NOTES_H
#define SRV_SESSION_NOTES_H

#include "attn_state.h"
#include "session/session.h"

#define SRV_NOTE_MAX 96 /* characters of a note's name or value */
#define SRV_NOTES 13    /* at most, beside one for each layer */

struct srv_note_text {
    char name[SRV_NOTE_MAX], value[SRV_NOTE_MAX];
};

/* A session at one moment; all else that is noted of it never changes. */
struct srv_session_moment {
    const struct attn_cache *cache;
    const struct srv_last_step *last_steps; /* [info.num_layers] */
    uint64_t used_ns;                       /* since 1970 */
    uint64_t next_record;                   /* the note "chain" */
    struct srv_revision revision;           /* the note of that name: its three numbers */
};

/* Fills out [SRV_NOTES + info.num_layers] and returns the number of notes.  `own`: for a file of
 * the state directory.  From any thread, while the moment's cache and last steps stay. */
size_t srv_notes_print(struct srv_note_text *out, const struct srv_session *session,
                       const struct srv_session_moment *moment, bool own);

/* Opens an export of the moment's cache with these notes; NULL with errno. */
struct attn_export *srv_notes_open_export(const struct srv_session *session,
                                          const struct srv_session_moment *moment, bool own);

/* The number that a note holds; 0 where there is no such note or it is not a number. */
uint64_t srv_notes_number(const struct attn_import *import, const char *name);

/* Reads the note of the session's revision; one that is not there is {0}.  False where it is
 * damaged. */
bool srv_notes_revision(struct srv_revision *out, const struct attn_import *import);

/* The digest that a note holds as 32 hexadecimal digits; false where it does not. */
bool srv_notes_digest(uint64_t out[2], const struct attn_import *import, const char *name);

/* Fills out [info.num_layers] with the last steps of the notes, each of which ends where its layer
 * of the cache ends.  Error: malformed_state. */
enum srv_error_code srv_notes_last_steps(struct srv_last_step *out,
                                         const struct attn_import *import,
                                         const struct srv_model *model,
                                         const struct attn_cache *cache, struct srv_error *error);

#endif
