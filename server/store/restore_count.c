/* restore_count.c: what a start would restore, without models and without tokens.
 *
 * Entries, gaps, marks and numbers of records are those of a start (restore.c, replay.c,
 * restore_gap.c).  A session is its epoch, its numbers and its times alone: no model, no cache, and
 * it is in no table.  So what only a model can tell is not found: a model that is not configured,
 * and rows of another shape under a sound checksum. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "store/restore.h"

static struct srv_session *make_session(struct srv_restored_session *entry, uint64_t used_ns,
                                        uint64_t ttl_s, uint64_t next_record)
{
    struct srv_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    session->references = 1;
    session->epoch = entry->epoch;
    session->used_ns = used_ns;
    session->ttl_ns = ttl_s * SRV_S_NS;
    session->next_record = next_record;
    return entry->session = session;
}

enum srv_restore_status srv_restore_count_made(struct srv_restored_session *entry,
                                               const struct srv_restore *restore,
                                               const struct srv_record_made *made, bool fork)
{
    const struct srv_record_create *create = &made->create;
    entry->lost = fork && srv_restore_parent(restore, create, NULL) == NULL;
    if (entry->lost)
        return SRV_RESTORE_OK;
    entry->pending = create->pending != 0;
    return make_session(entry, create->used_ns, create->ttl_s, 1) != NULL ? SRV_RESTORE_OK
                                                                          : SRV_RESTORE_FULL;
}

enum srv_restore_status srv_restore_count_described(struct srv_restored_session *entry,
                                                    struct srv_restore *restore,
                                                    const struct srv_manifest_entry *said)
{
    switch (srv_blocks_verify(&restore->map, restore->slots, &restore->reader, said)) {
    case ATTN_OK:
        break;
    case ATTN_NO_MEMORY:
        return SRV_RESTORE_FULL;
    case ATTN_IO:
        snprintf(restore->message, sizeof restore->message, "its blocks cannot be read: %s",
                 strerrordesc_np(errno));
        return SRV_RESTORE_UNREADABLE;
    default:
        snprintf(restore->message, sizeof restore->message, "a block is damaged or missing");
        return SRV_RESTORE_DAMAGED;
    }
    return make_session(entry, said->facts.used_ns, said->options->ttl_s,
                        said->facts.next_record) != NULL
               ? SRV_RESTORE_OK
               : SRV_RESTORE_FULL;
}

bool srv_restore_count_change(struct srv_restored_session *entry, const struct srv_record *record)
{
    uint64_t used_ns; /* the first member of both payloads */
    const uint16_t type = record->head.type;
    if (type == SRV_RECORD_COMMIT)
        return true;
    if ((type != SRV_RECORD_ROWS && type != SRV_RECORD_TRUNCATE) ||
        record->head.length < sizeof used_ns ||
        !srv_record_read(&used_ns, record, 0, sizeof used_ns))
        return false;
    entry->session->used_ns = used_ns;
    return true;
}

void srv_restore_count(struct srv_restore_result *out, const struct srv_restore *restore)
{
    *out = (struct srv_restore_result){0};
    for (size_t i = 0; i < restore->capacity; i++) {
        struct srv_restored_session *entry = &restore->entries[i];
        const struct srv_session *session = entry->session;
        entry->lost = entry->lost || (session != NULL && entry->unproven);
        if (entry->lost)
            out->lost++;
        else if (session != NULL && !entry->pending && restore->newest_ns > session->used_ns &&
                 restore->newest_ns - session->used_ns >= session->ttl_ns)
            out->expired++;
        else
            out->published += session != NULL && !entry->pending;
    }
}
