/* checkpoint_absent.c: a table of what lies where a checkpoint was expected. */
#include "layers/checkpoint.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <string.h>
#include <sys/stat.h>

#include "basics/status.h"

#define MOST_ENTRIES 4096 /* of a directory that are looked at */
#define DIGITS "[0-9][0-9][0-9][0-9][0-9]"
#define MERGE "merge it into its base first (peft: merge_and_unload, then save_pretrained)"
#define SAVE_ANEW "save the model as safetensors (transformers: save_pretrained)"

/* Names, '*' being any characters; the first row that fits an entry counts. */
static const struct {
    const char *name, *remedy;
} others[] = {
    {"pytorch_model.bin", SAVE_ANEW},
    {"pytorch_model.bin.index.json", SAVE_ANEW},
    {"model.*.safetensors", "a variant: rename it to model.safetensors"},
    {"model-00001-of-*", "a shard: fetch model.safetensors.index.json too"},
    {"consolidated.safetensors", "Mistral's own form: take that of transformers"},
    {"consolidated.*.pth", "Meta's own form: take that of transformers"},
    {"model_index.json", "a pipeline: name the directory of one of its models"},
    {"snapshots", "a cache of the hub: name the directory below snapshots"},
    {"*.gguf", "to serve it, name the file itself"},
    {"tf_model.h5", SAVE_ANEW},
    {"flax_model.msgpack", SAVE_ANEW},
    {"*.pt", SAVE_ANEW},
    {"*.pth", SAVE_ANEW},
    {"*.bin", SAVE_ANEW},
    {"*.npz", "to serve it, name the file itself, with a config"},
    {"*.safetensors", "to serve it, name the file itself, with a config"},
};

static const char *const adapters[] = {"adapter_config.json", "adapter_model.safetensors",
                                       "adapter_model.bin"};

static bool is_there(int directory, const char *name)
{
    struct stat info;
    return fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

enum attn_status attn_refuse_adapter(int directory, struct attn_error *error)
{
    for (size_t i = 0; i < ATTN_COUNT(adapters); i++)
        if (is_there(directory, adapters[i]))
            return attn_fail(error, ATTN_UNSUPPORTED, adapters[i],
                             "%s: an adapter (LoRA) is not applied: " MERGE
                             ", or move it elsewhere",
                             adapters[i]);
    return ATTN_OK;
}

/* The first row that fits an entry, whose name is copied; ATTN_COUNT(others) where none does. */
static size_t find_other(char name[NAME_MAX + 1], int directory)
{
    size_t best = ATTN_COUNT(others);
    DIR *list = attn_list_directory(directory);
    if (list == NULL)
        return best;
    const struct dirent *entry;
    for (size_t i = 0; i < MOST_ENTRIES && (entry = readdir(list)) != NULL; i++)
        for (size_t row = 0; row < best; row++)
            if (fnmatch(others[row].name, entry->d_name, 0) == 0) {
                best = row;
                memcpy(name, entry->d_name, strlen(entry->d_name) + 1);
            }
    closedir(list);
    return best;
}

/* GGUF files that are no model: image towers' projectors, and what quantisation went by. */
static const char *const no_models[] = {"mmproj*", "*[-._]mmproj*", "imatrix*", "*.imatrix.gguf"};

/* Whether the entry is a GGUF file that is a model, or its first part: not a further part. */
static bool is_gguf_model(const char *name)
{
    for (size_t i = 0; i < ATTN_COUNT(no_models); i++)
        if (fnmatch(no_models[i], name, 0) == 0)
            return false;
    return fnmatch("*.gguf", name, 0) == 0 &&
           (fnmatch("*-" DIGITS "-of-" DIGITS ".gguf", name, 0) != 0 ||
            fnmatch("*-00001-of-*", name, 0) == 0);
}

enum attn_status attn_find_gguf(char name[NAME_MAX + 1], int directory, const char *const *names,
                                size_t count, struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    const struct dirent *entry;
    name[0] = '\0';
    for (size_t i = 0; i < count; i++)
        if (is_there(directory, names[i]))
            return ATTN_OK;
    DIR *list = attn_list_directory(directory);
    for (size_t i = 0; list != NULL && i < MOST_ENTRIES && (entry = readdir(list)) != NULL; i++) {
        if (!is_gguf_model(entry->d_name))
            continue;
        if (name[0] != '\0')
            status = attn_fail(error, ATTN_MALFORMED, name,
                               "the directory holds %.64s and %.64s: name the file itself", name,
                               entry->d_name);
        memcpy(name, entry->d_name, strlen(entry->d_name) + 1);
    }
    if (list != NULL)
        closedir(list);
    return status;
}

enum attn_status attn_fail_absent(int directory, const char *name, const char *absent,
                                  struct attn_error *error)
{
    char other[NAME_MAX + 1];
    if (is_there(directory, name)) /* and could not be opened */
        return attn_fail(error, ATTN_NOT_FOUND, name,
                         "%s is a link to nothing: its target has to be copied or mounted too",
                         name);
    const size_t row = find_other(other, directory);
    if (row == ATTN_COUNT(others))
        return attn_fail(error, ATTN_NOT_FOUND, name, "%s", absent);
    return attn_fail(error, ATTN_NOT_FOUND, name, "%s; there is %.64s: %s", absent, other,
                     others[row].remedy);
}

/* A hub's name has one slash, and no directory begins like it. */
enum attn_status attn_fail_no_path(const char *path, struct attn_error *error)
{
    struct stat info;
    const char *slash = strchr(path, '/');
    char first[NAME_MAX + 1] = "";
    if (slash != NULL && (size_t)(slash - path) < sizeof first)
        memcpy(first, path, (size_t)(slash - path));
    const bool hub = first[0] != '\0' && first[0] != '.' && slash[1] != '\0' &&
                     strchr(slash + 1, '/') == NULL && stat(first, &info) != 0;
    return attn_fail(error, ATTN_NOT_FOUND, "path", "no such directory or file%s",
                     hub ? "; nothing is downloaded: for a model of a hub, fetch it first (hf "
                           "download NAME --local-dir DIR) and name DIR"
                         : "");
}
