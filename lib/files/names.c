/* names.c: items sorted by the names that they begin with. */
#include <stdlib.h>
#include <string.h>

#include "files/file.h"

static const char *name_of(const void *item) { return *(const char *const *)item; }

static int compare(const void *a, const void *b) { return strcmp(name_of(a), name_of(b)); }

const void *attn_sort_names(void *items, size_t count, size_t size)
{
    if (count > 0)
        qsort(items, count, size, compare);
    for (const char *item = items; count > 1; item += size, count--)
        if (compare(item, item + size) == 0)
            return item + size;
    return NULL;
}

const void *attn_find_name(const char *name, const void *items, size_t count, size_t size)
{
    return count > 0 ? bsearch(&name, items, count, size, compare) : NULL;
}

bool attn_visit_names(const void *items, size_t count, size_t size, const char *prefix,
                      attn_visit_name *visit, void *context)
{
    const char *first = items;
    const size_t length = strlen(prefix);
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strncmp(name_of(first + middle * size), prefix, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < count && strncmp(name_of(first + low * size), prefix, length) == 0; low++)
        if (!visit(context, name_of(first + low * size)))
            return false;
    return true;
}
