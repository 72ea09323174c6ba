/* checkpoint_names.c: the names of a checkpoint's tensors, as far as its open files and its index
 * tell them.  Each of these has them in order. */
#include <stdio.h>
#include <string.h>

#include "layers/checkpoint_files.h"

struct names {
    const char *(*at)(const struct names *names, size_t i);
    size_t count;
    const struct attn_safetensors *file;
    const struct attn_npz *npz;
    const struct mapping *weight_map;
};

static const char *file_name(const struct names *names, size_t i)
{
    return attn_safetensors_name(names->file, i);
}

static const char *npz_name(const struct names *names, size_t i)
{
    return attn_npz_name(names->npz, i);
}

static const char *mapped_name(const struct names *names, size_t i)
{
    return names->weight_map[i].tensor;
}

/* False where visit() has ended it. */
static bool visit_names(const struct names *names, const char *prefix, attn_visit_name *visit,
                        void *context)
{
    const size_t length = strlen(prefix);
    size_t low = 0, high = names->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (strncmp(names->at(names, middle), prefix, length) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < names->count && strncmp(names->at(names, low), prefix, length) == 0; low++)
        if (!visit(context, names->at(names, low)))
            return false;
    return true;
}

void attn_checkpoint_visit(const struct attn_checkpoint *checkpoint, const char *prefix,
                           attn_visit_name *visit, void *context)
{
    struct names names = {
        .at = mapped_name, .count = checkpoint->num_mappings, .weight_map = checkpoint->weight_map};
    bool goes_on = visit_names(&names, prefix, visit, context);
    if (goes_on && checkpoint->npz != NULL) {
        names = (struct names){
            .at = npz_name, .count = attn_npz_count(checkpoint->npz), .npz = checkpoint->npz};
        goes_on = visit_names(&names, prefix, visit, context);
    }
    for (size_t i = 0; goes_on && i < checkpoint->num_shards; i++) {
        const struct attn_safetensors *file = checkpoint->shards[i].file;
        if (file == NULL)
            continue;
        names =
            (struct names){.at = file_name, .count = attn_safetensors_count(file), .file = file};
        goes_on = visit_names(&names, prefix, visit, context);
    }
}

struct list {
    char *out;
    size_t size, at;
};

static bool add_name(void *context, const char *name)
{
    struct list *list = context;
    if (list->at < list->size)
        list->at += (size_t)snprintf(list->out + list->at, list->size - list->at, "%s%.48s",
                                     list->at > 0 ? ", " : "", name);
    return list->at < list->size;
}

void attn_checkpoint_list(char *out, size_t size, const struct attn_checkpoint *checkpoint,
                          const char *prefix)
{
    struct list list = {.out = out, .size = size};
    out[0] = '\0';
    attn_checkpoint_visit(checkpoint, prefix, add_name, &list);
    if (list.at >= size && size > 4)
        memcpy(out + size - 4, "...", 4);
}
