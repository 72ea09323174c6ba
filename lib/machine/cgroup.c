/* cgroup.c: walks the directories of control groups, v1 and v2. */
#include "machine/cgroup.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basics/mem.h"

#define MAX_LINES 64
#define MAX_DIRECTORY 1024 /* bytes of a directory's name */

bool attn_cgroup_line(char *line, int size, const char *directory, const char *name)
{
    char path[MAX_DIRECTORY + 32];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "re");
    bool got = file != NULL && fgets(line, size, file) != NULL;
    if (file != NULL)
        fclose(file);
    if (!got)
        line[0] = '\0';
    return got;
}

/* The least limit from mount/group up to the mount itself.  In a container `group` may be a path of
 * the host that is not visible here; the walk then finds the container's own group at the top. */
static size_t least_up_to_mount(const char *mount, const char *group,
                                attn_cgroup_read_limit *read_limit)
{
    char directory[MAX_DIRECTORY];
    int length = snprintf(directory, sizeof directory, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof directory)
        return SIZE_MAX;
    size_t least = SIZE_MAX;
    for (size_t top = strlen(mount); strlen(directory) >= top;) {
        least = attn_min(least, read_limit(directory));
        *strrchr(directory, '/') = '\0';
    }
    return least;
}

/* Whether the list, such as "cpu,cpuacct", names the controller. */
static bool list_names(const char *list, const char *controller)
{
    size_t length = strlen(controller);
    for (const char *at = list; at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, controller, length) == 0 && (at[length] == ',' || at[length] == '\0'))
            return true;
    }
    return false;
}

/* The limit of one line of /proc/self/cgroup: "0::/path" is v2's; "4:cpu,cpuacct:/path" is v1's,
 * whose hierarchy is mounted under the name of its list. */
static size_t line_least(char *line, const char *root, const char *controller,
                         attn_cgroup_read_limit *read_limit)
{
    char mount[MAX_DIRECTORY];
    char *list = strchr(line, ':');
    char *group = list != NULL ? strchr(list + 1, ':') : NULL;
    if (group == NULL)
        return SIZE_MAX;
    *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    list++;
    if (list[0] != '\0' && !list_names(list, controller))
        return SIZE_MAX;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, list[0] != '\0' ? "/" : "", list);
    return least_up_to_mount(mount, group, read_limit);
}

size_t attn_cgroup_least(const char *root, const char *controller,
                         attn_cgroup_read_limit *read_limit)
{
    char line[MAX_DIRECTORY];
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    if (file == NULL)
        return SIZE_MAX;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < MAX_LINES && fgets(line, sizeof line, file) != NULL; i++)
        least = attn_min(least, line_least(line, root, controller, read_limit));
    fclose(file);
    return least;
}

/* memory.max of v2, which is "max" without a limit, or v1's file, which then holds a number beyond
 * any machine. */
static size_t directory_memory(const char *directory)
{
    char line[64];
    if (!attn_cgroup_line(line, sizeof line, directory, "memory.max") &&
        !attn_cgroup_line(line, sizeof line, directory, "memory.limit_in_bytes"))
        return SIZE_MAX;
    if (line[0] < '0' || line[0] > '9')
        return SIZE_MAX;
    return strtoull(line, NULL, 10);
}

size_t attn_cgroup_memory(const char *root)
{
    return attn_cgroup_least(root, "memory", directory_memory);
}
