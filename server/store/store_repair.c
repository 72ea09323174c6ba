/* store_repair.c: repairs of a state directory, listed while its files are read and made at the end
 * of a start that succeeds: a start that is refused touches nothing. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/store_internal.h"

struct srv_repair {
    char name[SRV_FILE_NAME];
    bool set_aside; /* else it is truncated */
    size_t good;    /* bytes that it keeps */
};

static bool add(struct srv_repairs *repairs, const char *name, bool set_aside, size_t good)
{
    if (repairs->count == repairs->capacity) {
        size_t capacity = 2 * repairs->capacity + 8;
        struct srv_repair *more = realloc(repairs->items, capacity * sizeof *more);
        if (more == NULL)
            return false;
        repairs->items = more;
        repairs->capacity = capacity;
    }
    struct srv_repair *repair = &repairs->items[repairs->count++];
    *repair = (struct srv_repair){.set_aside = set_aside, .good = good};
    snprintf(repair->name, sizeof repair->name, "%s", name);
    return true;
}

bool srv_repairs_set_aside(struct srv_repairs *repairs, const char *name)
{
    return add(repairs, name, true, 0);
}

bool srv_repairs_truncate(struct srv_repairs *repairs, const char *name, size_t good)
{
    return add(repairs, name, false, good);
}

static void truncate_file(const struct srv_repair *repair, const struct srv_store *store)
{
    int fd = openat(store->directory, repair->name, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && ftruncate(fd, (off_t)repair->good) != 0)
        srv_log_event(store->context.log, SRV_LOG_ERROR, "storage", "%s: %s", repair->name,
                      strerror(errno));
    if (fd >= 0)
        close(fd);
}

void srv_repairs_apply(const struct srv_repairs *repairs, const struct srv_store *store,
                       bool truncates)
{
    for (size_t i = 0; i < repairs->count; i++)
        if (repairs->items[i].set_aside)
            srv_file_set_aside(store->directory, repairs->items[i].name);
        else if (truncates)
            truncate_file(&repairs->items[i], store);
}

void srv_repairs_fini(struct srv_repairs *repairs)
{
    free(repairs->items);
    *repairs = (struct srv_repairs){0};
}
