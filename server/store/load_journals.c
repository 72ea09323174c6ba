/* load_journals.c: journals at a start, in their order. */
#include <errno.h>
#include <string.h>

#include "store/store_load.h"

static struct srv_log *log_of(const struct srv_load *load) { return load->store->context.log; }

/* As struct srv_journal_reader has it: asks the journals after the one that is being read. */
static uint64_t synced_later(void *context)
{
    struct srv_load *load = context;
    uint64_t end = UINT64_MAX, synced = 0;
    for (size_t i = load->journal + 1; i < load->count; i++) {
        struct srv_file_reader journal;
        struct srv_record first;
        struct srv_record_mark mark;
        if (load->files[i].kind != SRV_FILE_JOURNAL ||
            !srv_load_begin_file(&journal, load, load->files[i].name))
            continue;
        uint64_t found = srv_journal_synced(&first, &journal, load->files[i].generation);
        synced = found > synced ? found : synced;
        if (srv_restore_read_mark(&mark, &first) &&
            mark.previous.generation == load->files[load->journal].generation)
            end = mark.previous.sequence;
        srv_file_reader_close(&journal);
    }
    return synced > 0 ? end : 0;
}

static void report_journal(struct srv_load *load, const struct srv_file *file,
                           const struct srv_replay_result *replayed, size_t size)
{
    if (replayed->gaps > 0)
        srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged",
                      "%s has %zu damaged places; it will be set aside", file->name,
                      replayed->gaps);
    if (replayed->last)
        srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged",
                      "%s does not count from byte %zu of %zu on, nor do later journals: it had "
                      "not been flushed, and a part is missing; it will be set aside",
                      file->name, replayed->good, size);
    if (replayed->gaps == 0 && !replayed->last)
        return;
    srv_load_count_damaged(load);
    load->incomplete = true;
    load->ended = replayed->last;
}

/* Has the torn write at the end of a journal removed: no client was answered for its records, and a
 * later start is not to report it again. */
static bool truncate_tail(struct srv_load *load, const char *name, size_t good, size_t size)
{
    srv_log_event(log_of(load), SRV_LOG_INFO, "torn",
                  "%s ends in a write that was cut off: %zu bytes of it go", name, size - good);
    return srv_repairs_truncate(&load->repairs, name, good) || srv_load_refuse_memory(load);
}

static bool read_journal(struct srv_load *load, const struct srv_file *file)
{
    struct srv_file_reader journal;
    struct srv_replay_result replayed;
    if (!srv_load_begin_file(&journal, load, file->name))
        return srv_load_refuse_unreadable(load, file->name, strerror(errno));
    load->journal = (size_t)(file - load->files);
    enum srv_restore_status result =
        srv_restore_journal(&replayed, &load->restore, file->generation, &journal);
    srv_load_end_file(load, &journal);
    if (result == SRV_RESTORE_UNREADABLE)
        return srv_load_refuse_unreadable(
            load, file->name, journal.error != 0 ? strerror(journal.error) : load->restore.message);
    if (result == SRV_RESTORE_FULL)
        return srv_load_refuse(load);
    report_journal(load, file, &replayed, journal.size);
    load->store->older_bytes += journal.size;
    return !replayed.torn || replayed.last || replayed.good == journal.size ||
           truncate_tail(load, file->name, replayed.good, journal.size);
}

static bool miss_journal(struct srv_load *load, const char *name, uint64_t generation)
{
    srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged", "a journal before %s is missing", name);
    srv_restore_open_gap(&load->restore, (struct srv_place){generation, 1});
    load->incomplete = true;
    return true;
}

bool srv_load_journals(struct srv_load *load)
{
    uint64_t expected = 0;
    bool going = true;
    load->restore.synced_later = synced_later;
    load->restore.context = load;
    for (size_t i = 0; i < load->count && going; i++) {
        const struct srv_file *file = &load->files[i];
        if (file->kind != SRV_FILE_JOURNAL || file->generation < load->generation)
            continue;
        if (!load->ended &&
            ((expected != 0 && file->generation != expected) ||
             (expected == 0 && load->generation != 0 && file->generation > load->generation + 1)))
            going = miss_journal(load, file->name, expected != 0 ? expected : load->generation);
        expected = file->generation + 1;
        going = going && (load->ended || read_journal(load, file));
        load->store->older_journals++;
    }
    return going;
}
