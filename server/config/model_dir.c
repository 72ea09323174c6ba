/* model_dir.c: the option model_dir: each directory in it that holds a checkpoint is a model. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/owner.h"
#include "config/options.h"

#define SHOWN 4 /* entries that are named in the note */

struct scan {
    bool found;                     /* a checkpoint */
    size_t passed;                  /* entries that are none */
    char text[SRV_CONFIG_NOTE / 2]; /* the first of these */
};

/* Whether the directory holds a file of that ending. */
static bool has_file(const char *path, const char *ending)
{
    DIR *list = opendir(path);
    bool found = false;
    const struct dirent *entry;
    while (list != NULL && !found && (entry = readdir(list)) != NULL) {
        const size_t length = strlen(entry->d_name), count = strlen(ending);
        found = length > count && strcmp(entry->d_name + length - count, ending) == 0;
    }
    if (list != NULL)
        closedir(list);
    return found;
}

/* Looks for a config.json, or, where `gguf` is set, a GGUF file, in the directory `name` of
 * `directory`: 0 where there is one, otherwise an errno; ENOENT where there is none, ENOTDIR where
 * `name` is no directory. */
static int find_checkpoint(const char *directory, const char *name, bool gguf)
{
    char *path;
    struct stat status;
    if (asprintf(&path, "%s/%s/config.json", directory, name) < 0)
        return ENOMEM;
    int code = stat(path, &status) == 0 ? 0 : errno;
    *strrchr(path, '/') = '\0';
    if (gguf && code == ENOENT && has_file(path, ".gguf"))
        code = 0;
    free(path);
    return code;
}

/* Refuses `path`, of model_dir or in it, with the remedy where another user owns it. */
static bool refuse_errno(struct srv_config_reading *reading, const char *path, int why)
{
    char remedy[SRV_OWNER_TEXT] = "";
    if (why == EACCES)
        srv_owner_remedy(remedy, path, SRV_OWNER_READ);
    return srv_refuse(reading->message, "model_dir: %.200s: %s%s", path, strerror(why), remedy);
}

/* Adds the model `name` where it is one.  A directory that may not be looked into, and could be a
 * model by its name, is refused, and not left out in silence. */
static bool add_directory(struct srv_config_reading *reading, const char *name, struct scan *scan)
{
    const char *directory = reading->config->model_dir;
    char path[256];
    size_t length = strlen(scan->text);
    if (srv_config_find_model(reading->config, name, strlen(name)) != NULL || name[0] == '.')
        return true;
    int code = find_checkpoint(directory, name, true);
    if (code != 0) {
        if (scan->passed++ < SHOWN)
            snprintf(scan->text + length, sizeof scan->text - length, "%s%.48s (%s)",
                     length > 0 ? ", " : "", name, code == ENOTDIR ? "a file" : "no config.json");
        snprintf(path, sizeof path, "%.128s/%.64s", directory, name);
        return code == ENOENT || code == ENOTDIR || !srv_id_valid(name) ||
               refuse_errno(reading, path, code);
    }
    scan->found = true;
    if (!srv_id_valid(name))
        return srv_refuse(reading->message,
                          "model_dir: %.128s/%.64s: a model's name must be " SRV_ID_RULE, directory,
                          name);
    struct srv_model_entry *entry = srv_config_new_model(reading);
    if (entry == NULL)
        return false;
    memcpy(entry->name, name, strlen(name) + 1);
    if (asprintf(&entry->path, "%s/%s", directory, name) >= 0)
        return true;
    entry->path = NULL;
    return srv_refuse(reading->message, "model_dir: out of memory");
}

bool srv_config_model_dir(struct srv_config_reading *reading)
{
    const char *directory = reading->config->model_dir;
    struct dirent **list;
    if (directory == NULL)
        return true;
    if (find_checkpoint(directory, ".", false) == 0)
        return srv_refuse(reading->message,
                          "model_dir: %.128s is a checkpoint itself: name it by --model "
                          "NAME=DIR, or give the directory that it is in",
                          directory);
    int count = scandir(directory, &list, NULL, alphasort);
    if (count < 0)
        return refuse_errno(reading, directory, errno);
    struct scan scan = {.found = false};
    bool good = true;
    char more[32] = "";
    for (int i = 0; i < count; i++) {
        good = good && add_directory(reading, list[i]->d_name, &scan);
        free(list[i]);
    }
    free(list);
    if (scan.passed > SHOWN)
        snprintf(more, sizeof more, " and %zu more", scan.passed - SHOWN);
    if (!scan.found || scan.passed > 0)
        srv_config_note(reading, "model_dir %.160s%s%s%s%s", directory,
                        scan.found ? "" : ": no checkpoint in it",
                        scan.passed > 0 ? ": passed over: " : "", scan.text, more);
    return good;
}
