/* model_dir.c: the option model_dir: each directory in it that holds a checkpoint is a model. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/id.h"
#include "base/owner.h"
#include "config/options.h"

#define SHOWN 4 /* entries that are named in the note */

/* The entries of a directory that are no checkpoints. */
struct passed_over {
    char text[SRV_CONFIG_NOTE / 2];
    size_t count;
};

/* Looks for a config.json in `directory`, or in the directory `name` of it: 0 where there is one,
 * otherwise an errno; ENOENT where there is none, ENOTDIR where `name` is no directory. */
static int find_checkpoint(const char *directory, const char *name)
{
    char *path;
    struct stat status;
    if (asprintf(&path, "%s/%s/config.json", directory, name) < 0)
        return ENOMEM;
    int code = stat(path, &status) == 0 ? 0 : errno;
    free(path);
    return code;
}

static void pass_over(struct passed_over *over, const char *name, int code)
{
    size_t length = strlen(over->text);
    if (name[0] == '.')
        return;
    if (over->count++ < SHOWN)
        snprintf(over->text + length, sizeof over->text - length, "%s%.48s (%s)",
                 length > 0 ? ", " : "", name, code == ENOTDIR ? "a file" : "no config.json");
}

static void note(struct srv_config_reading *reading, const struct passed_over *over, bool empty)
{
    char more[32] = "";
    if (over->count > SHOWN)
        snprintf(more, sizeof more, " and %zu more", over->count - SHOWN);
    if (empty || over->count > 0)
        srv_config_note(reading, "model_dir %.160s%s%s%s%s", reading->config->model_dir,
                        empty ? ": no checkpoint in it" : "",
                        over->count > 0 ? ": passed over: " : "", over->text, more);
}

/* Refuses `path`, of model_dir or in it, with the remedy where another user owns it. */
static bool refuse_errno(struct srv_config_reading *reading, const char *path, int why)
{
    char remedy[SRV_OWNER_TEXT] = "";
    if (why == EACCES)
        srv_owner_remedy(remedy, path, SRV_OWNER_READ);
    return srv_refuse(reading->message, "model_dir: %.200s: %s%s", path, strerror(why), remedy);
}

/* Adds the model `name` where it is one; *any then is true.  A directory that may not be looked
 * into, and could be a model by its name, is refused, and not left out in silence. */
static bool add_directory(struct srv_config_reading *reading, const char *name,
                          struct passed_over *over, bool *any)
{
    const char *directory = reading->config->model_dir;
    char path[256];
    if (srv_config_find_model(reading->config, name, strlen(name)) != NULL)
        return true;
    int code = name[0] == '.' ? ENOENT : find_checkpoint(directory, name);
    if (code != 0) {
        pass_over(over, name, code);
        snprintf(path, sizeof path, "%.128s/%.64s", directory, name);
        return code == ENOENT || code == ENOTDIR || !srv_id_valid(name) ||
               refuse_errno(reading, path, code);
    }
    *any = true;
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
    if (find_checkpoint(directory, ".") == 0)
        return srv_refuse(reading->message,
                          "model_dir: %.128s is a checkpoint itself: name it by --model "
                          "NAME=DIR, or give the directory that it is in",
                          directory);
    int count = scandir(directory, &list, NULL, alphasort);
    if (count < 0)
        return refuse_errno(reading, directory, errno);
    bool good = true, any = false;
    struct passed_over over = {.count = 0};
    for (int i = 0; i < count; i++) {
        good = good && add_directory(reading, list[i]->d_name, &over, &any);
        free(list[i]);
    }
    free(list);
    note(reading, &over, !any);
    return good;
}
