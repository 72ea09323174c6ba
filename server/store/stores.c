/* stores.c: opens, starts and closes all stores, and asks all for snapshots. */
#include "store/stores.h"

#include <stdio.h>
#include <sys/stat.h>

#include "config/config.h"
#include "store/store_internal.h"

static size_t count_of(const struct srv_store *own)
{
    return own != NULL ? 1 + own->num_adopted : 0;
}

static struct srv_store *store_at(const struct srv_store *own, size_t i)
{
    return i == 0 ? (struct srv_store *)(uintptr_t)own : own->adopted[i - 1];
}

/* Says of which directory the message is, where it does not yet; its end may be lost. */
static bool refuse(const char *path, char *message, size_t size)
{
    char why[512];
    snprintf(why, sizeof why, "%s", message);
    snprintf(message, size, "adopt%s%s: %s", path[0] != '\0' ? " " : "", path, why);
    return false;
}

/* The path by which the directory is open already; NULL: none. */
static const char *other_path(const struct srv_store *own, const char *path)
{
    struct stat wanted, open;
    const bool there = stat(path, &wanted) == 0;
    for (size_t i = 0; there && i < count_of(own); i++)
        if (fstat(srv_store_directory(store_at(own, i)), &open) == 0 &&
            open.st_dev == wanted.st_dev && open.st_ino == wanted.st_ino)
            return store_at(own, i)->path;
    return NULL;
}

static bool adopt(struct srv_store *own, const char *path, char *message, size_t size)
{
    struct srv_store_context context = own->context;
    context.state_dir = path;
    context.index = (unsigned)own->num_adopted + 1;
    context.naming = SRV_NAME_HELD;
    const char *same = other_path(own, path);
    if (same != NULL) {
        snprintf(message, size, "it is the same directory as %s", same);
        return refuse(path, message, size);
    }
    if (!srv_store_open(&own->adopted[own->num_adopted], &context, message, size))
        return refuse("", message, size);
    own->num_adopted++;
    return true;
}

bool srv_stores_open(struct srv_store **out, const struct srv_store_context *context,
                     const char *names, char *message, size_t size)
{
    char path[SRV_LISTED_MAX + 1];
    bool opened = srv_store_open(out, context, message, size);
    while (opened && *out != NULL && srv_config_take_name(path, &names))
        opened = adopt(*out, path, message, size);
    return opened; /* where false, what is open is the caller's to close */
}

/* Leaves the first stores as the start has found them: a daemon that is started again and again
 * would add a journal to each every time. */
static void unload(struct srv_store *own, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        srv_store_drop_journal(store_at(own, i));
        store_at(own, i)->loaded = false;
    }
}

bool srv_stores_load(struct srv_store *own, char *message, size_t size)
{
    for (size_t i = 0; i < count_of(own); i++)
        if (!srv_store_load(store_at(own, i), message, size)) {
            unload(own, i);
            return i == 0 ? false : refuse(store_at(own, i)->path, message, size);
        }
    return true;
}

bool srv_stores_start(struct srv_store *own, char *message, size_t size)
{
    for (size_t i = 0; i < count_of(own); i++)
        if (!srv_store_start(store_at(own, i), message, size))
            return false;
    return true;
}

bool srv_stores_close(struct srv_store *own)
{
    bool saved = true;
    for (size_t i = count_of(own); i-- > 0;)
        saved = srv_store_close(store_at(own, i)) && saved;
    return saved;
}

bool srv_stores_want_snapshot(const struct srv_store *own)
{
    for (size_t i = 0; i < count_of(own); i++)
        if (srv_store_wants_snapshot(store_at(own, i)))
            return true;
    return false;
}

void srv_stores_take_snapshot(struct srv_store *own)
{
    for (size_t i = 0; i < count_of(own); i++)
        srv_store_take_snapshot(store_at(own, i));
}

size_t srv_stores_unread(const struct srv_store *own)
{
    size_t sessions = 0;
    for (size_t i = 0; i < count_of(own); i++)
        sessions += srv_store_unread(store_at(own, i));
    return sessions;
}

size_t srv_stores_restoring(const struct srv_store *own)
{
    size_t sessions = 0;
    for (size_t i = 0; i < count_of(own); i++)
        sessions += srv_store_restoring(store_at(own, i));
    return sessions;
}

void srv_stores_count_blocks(size_t *used, size_t *held, const struct srv_store *own)
{
    *used = *held = 0;
    for (size_t i = 0; i < count_of(own); i++) {
        struct srv_slots_figures figures = {0};
        if (store_at(own, i)->slots != NULL)
            srv_slots_describe(&figures, store_at(own, i)->slots);
        *used += figures.used - figures.waiting;
        *held += figures.held;
    }
}

size_t srv_stores_waited_s(const struct srv_store *own)
{
    size_t longest = 0;
    for (size_t i = 0; i < count_of(own); i++) {
        size_t waited = srv_store_waited_s(store_at(own, i));
        longest = waited > longest ? waited : longest;
    }
    return longest;
}

bool srv_stores_have_restored(struct srv_store *own)
{
    bool restored = false;
    for (size_t i = 0; i < count_of(own); i++)
        restored = restored || srv_store_has_restored(store_at(own, i));
    return restored;
}

bool srv_stores_take_restored(struct srv_store *own)
{
    bool restored = false;
    for (size_t i = 0; i < count_of(own); i++)
        restored = srv_store_take_restored(store_at(own, i)) || restored;
    return restored;
}

/* ---- Status ---------------------------------------------------------------------------------- */

/* Adds the status of an adopted store to that of the own one, whose `owed` generation is. */
static void add_status(struct srv_store_status *out, const struct srv_store_status *adopted)
{
    out->journal_bytes += adopted->journal_bytes;
    out->running = out->running || adopted->running;
    if (adopted->base < adopted->owed && out->owed > 0 && out->base >= out->owed)
        out->base = out->owed - 1;
}

typedef void status_function(struct srv_store_status *out, struct srv_store *store);

static void ask_all(struct srv_store_status *out, struct srv_store *own, status_function *ask)
{
    struct srv_store_status adopted;
    ask(out, own);
    for (size_t i = 1; i < count_of(own); i++) {
        ask(&adopted, store_at(own, i));
        add_status(out, &adopted);
    }
}

void srv_stores_describe(struct srv_store_status *out, struct srv_store *own)
{
    ask_all(out, own, srv_store_describe);
}

void srv_stores_request_snapshot(struct srv_store_status *out, struct srv_store *own)
{
    ask_all(out, own, srv_store_request_snapshot);
}

size_t srv_stores_directories(int out[SRV_MAX_ADOPTED + 1], const struct srv_store *own)
{
    for (size_t i = 0; i < count_of(own); i++)
        out[i] = srv_store_directory(store_at(own, i));
    return count_of(own);
}
