/* load_manifest.c: the newest manifest at a start, and the sessions that it has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_load.h"

static struct srv_log *log_of(const struct srv_load *load) { return load->store->context.log; }

/* Has both copies of a manifest set aside of which no section counts. */
static bool set_aside(struct srv_load *load, uint64_t generation)
{
    bool going = true;
    for (size_t i = 0; i < load->count && going; i++)
        if (srv_file_is_manifest(&load->files[i]) && load->files[i].generation == generation)
            going = srv_load_set_aside(load, load->files[i].name, "it says of no moment what is");
    load->incomplete = true;
    return going;
}

static bool read_manifest(struct srv_manifest_state *state, struct srv_load *load,
                          const struct srv_file *file)
{
    const enum srv_manifest_reading result =
        srv_manifest_read(state, load->store->directory, file->generation, false);
    if (result == SRV_MANIFEST_UNREADABLE) {
        char name[SRV_MANIFEST_NAME];
        srv_manifest_name(name, file->generation, state->unreadable);
        return srv_load_refuse_unreadable(load, name, strerror(errno));
    }
    if (result == SRV_MANIFEST_NONE) {
        srv_manifest_state_fini(state);
        if (load->restore.base_generation == 0) /* it has what earlier journals had */
            load->restore.base_generation = file->generation;
        return set_aside(load, file->generation);
    }
    load->generation = load->restore.base_generation = state->generation;
    if (load->store->generation < state->generation) /* without journals no file is named by it */
        load->store->generation = state->generation;
    srv_restore_note_time(&load->restore, state->time_ns);
    load->differs = state->damaged > 0;
    load->store->manifest_named = load->differs ? 0 : file->generation;
    if (load->differs)
        srv_log_event(log_of(load), SRV_LOG_INFO, "damaged",
                      "%s and its copy differ in %zu records", file->name, state->damaged);
    return true;
}

static bool restore_session(struct srv_load *load, const struct srv_manifest_entry *said)
{
    switch (srv_restore_described(&load->restore, said)) {
    case SRV_RESTORE_FULL:
        return srv_load_refuse(load);
    case SRV_RESTORE_UNREADABLE:
        return srv_load_refuse_unreadable(load, "a session", load->restore.message);
    case SRV_RESTORE_DAMAGED:
        srv_load_count_damaged(load); /* fall through */
    case SRV_RESTORE_NO_MODEL:
        srv_log_event(log_of(load), SRV_LOG_ERROR, "damaged",
                      "session %016llx cannot be restored: %s", (unsigned long long)said->epoch,
                      load->restore.message);
        return true;
    default:
        return true;
    }
}

static int by_epoch(const void *a, const void *b)
{
    const struct srv_manifest_entry *x = *(const struct srv_manifest_entry *const *)a;
    const struct srv_manifest_entry *y = *(const struct srv_manifest_entry *const *)b;
    return (x->epoch > y->epoch) - (x->epoch < y->epoch);
}

/* Makes the sessions in the order in which they were created. */
static bool restore_sessions(struct srv_load *load, const struct srv_manifest_state *state)
{
    const struct srv_manifest_entry **order =
        malloc((state->count + 1) * sizeof(const struct srv_manifest_entry *));
    size_t count = 0;
    if (order == NULL)
        return srv_load_refuse_memory(load);
    for (size_t i = 0; i < state->capacity; i++)
        if (state->entries[i].epoch != 0)
            order[count++] = &state->entries[i];
    qsort(order, count, sizeof(const struct srv_manifest_entry *), by_epoch);
    bool going = true;
    for (size_t i = 0; i < count && going; i++)
        going = restore_session(load, order[i]);
    free(order);
    srv_restore_forget_blocks(&load->restore);
    return going;
}

bool srv_load_manifest(struct srv_load *load)
{
    struct srv_manifest_state state = {0};
    bool going = true;
    const struct srv_file *file = srv_files_newest_manifest(load->files, load->count, UINT64_MAX);
    for (; going && file != NULL && load->generation == 0;
         file = srv_files_newest_manifest(load->files, load->count, file->generation))
        going = read_manifest(&state, load, file);
    going = going && restore_sessions(load, &state);
    srv_manifest_state_fini(&state);
    return going;
}
