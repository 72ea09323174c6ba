/* load_sessions.c: session files at a start: those that the base names, or without a base the
 * newest of each session. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_load.h"

static struct srv_log *log_of(const struct srv_load *load) { return load->store->context.log; }

/* ---- Sessions as the base describes them ----------------------------------------------------- */

/* Makes the session of an entry, whose file must be there, without its tokens. */
static bool restore_described(struct srv_load *load, const struct srv_session_file *file,
                              struct srv_base_session *description, size_t *at)
{
    return srv_base_session(description, at, &load->base_file, &load->base_size) &&
           srv_files_have_session(load->files, load->count, file->generation, file->epoch) &&
           srv_restore_described(&load->restore, file, description) == SRV_RESTORE_OK;
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* The session's file does not exist. */
static bool miss_session(struct srv_load *load, uint64_t epoch, const char *name)
{
    struct srv_restored_session *entry = srv_restore_entry(&load->restore, epoch);
    if (entry == NULL)
        return srv_load_refuse(load);
    entry->lost = true;
    srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged", "%s is missing", name);
    srv_load_count_damaged(load);
    return true;
}

static bool read_session(struct srv_load *load, const struct srv_session_file *session)
{
    struct srv_file file;
    struct srv_file_reader reader;
    srv_file_name(&file, SRV_FILE_SESSION, session->generation, session->epoch);
    if (!srv_load_begin_file(&reader, load, file.name))
        return errno == ENOENT ? miss_session(load, session->epoch, file.name)
                               : srv_load_refuse_unreadable(load, file.name, strerror(errno));
    enum srv_restore_status result = srv_restore_file(&load->restore, session, &reader);
    srv_load_end_file(load, &reader);
    if (result == SRV_RESTORE_UNREADABLE)
        return srv_load_refuse_unreadable(load, file.name, load->restore.message);
    if (result == SRV_RESTORE_DAMAGED || result == SRV_RESTORE_NO_MODEL)
        return srv_load_set_aside(load, file.name, load->restore.message);
    return result != SRV_RESTORE_FULL || srv_load_refuse(load);
}

/* The file of a base's entry, whose shares are the next ones. */
static struct srv_session_file next_file(struct srv_load *load, const struct srv_base_entry *entry)
{
    struct srv_session_file file = {entry->epoch, entry->generation,
                                    load->base.shares + load->next_share, 0};
    while (load->next_share < load->base_size.shares &&
           load->base.shares[load->next_share].session == entry->epoch) {
        load->next_share++;
        file.num_shares++;
    }
    srv_restore_note_time(&load->restore, entry->used_ns);
    return file;
}

static bool read_entry(struct srv_load *load, const struct srv_base_entry *entry)
{
    const struct srv_session_file file = next_file(load, entry);
    if (!read_session(load, &file))
        return false;
    const struct srv_restored_session *restored = srv_restore_find(&load->restore, entry->epoch);
    if (restored != NULL && restored->session != NULL)
        restored->session->used_ns = entry->used_ns;
    else if (restored != NULL && !restored->unknown_model)
        srv_shares_replace(load->base.shares, load->base_size.shares, entry->epoch);
    return true;
}

static bool read_listed(struct srv_load *load)
{
    bool going = true;
    for (size_t i = 0; i < load->base_size.entries && going; i++)
        going = read_entry(load, &load->base.entries[i]);
    return going;
}

static bool restore_listed(struct srv_load *load)
{
    struct srv_base_session *description = malloc(srv_base_session_bytes(ATTN_MAX_LAYERS));
    size_t at = load->base_size.sessions;
    bool going = description != NULL;
    for (size_t i = 0; i < load->base_size.entries && going; i++) {
        const struct srv_base_entry *entry = &load->base.entries[i];
        const struct srv_session_file file = next_file(load, entry);
        going = restore_described(load, &file, description, &at);
        if (going)
            srv_restore_find(&load->restore, entry->epoch)->session->used_ns = entry->used_ns;
    }
    free(description);
    return going || srv_load_give_up(load);
}

/* The newest generation whose session files can be trusted: that of the newest base, which
 * is damaged; without one, that of the first journal if none is missing after it, since later files
 * may come from an unfinished snapshot; else all. */
static uint64_t newest_trusted(const struct srv_load *load)
{
    uint64_t base = 0, first = 0;
    size_t journals = 0;
    for (size_t i = 0; i < load->count; i++) {
        const struct srv_file *file = &load->files[i];
        if (file->kind == SRV_FILE_BASE)
            base = file->generation;
        if (file->kind == SRV_FILE_JOURNAL && journals++ == 0)
            first = file->generation;
    }
    if (base != 0)
        return base;
    bool whole = journals > 0 && load->store->generation - first + 1 == journals;
    return whole ? first : UINT64_MAX;
}

/* Without a base: reads the newest file of each session. */
static bool read_found(struct srv_load *load)
{
    bool going = true;
    uint64_t last = newest_trusted(load);
    for (size_t i = load->count; i-- > 0 && going;) {
        const struct srv_file *file = &load->files[i];
        if (file->kind == SRV_FILE_SESSION && file->epoch != 0 && file->generation <= last &&
            srv_restore_find(&load->restore, file->epoch) == NULL)
            going = read_session(load, &(struct srv_session_file){.epoch = file->epoch,
                                                                  .generation = file->generation});
    }
    return going;
}

bool srv_load_sessions(struct srv_load *load)
{
    if (load->generation == 0)
        return read_found(load);
    const bool later = load->restore.extents != NULL;
    const bool loaded = later ? restore_listed(load) : read_listed(load);
    srv_file_reader_close(&load->base_file);
    return loaded;
}
