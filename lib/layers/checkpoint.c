/* checkpoint.c: the files of a model directory.
 *
 * A single file is a checkpoint of one shard and no index.  With an index, `weight_map` maps tensor
 * names to shards, sorted by name; the names live in the index's text.  Shard names come from a
 * file that anyone may have written, so they must be plain names inside the directory. */
#include "layers/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "basics/status.h"
#include "files/file.h"
#include "files/json_members.h"

#define CONFIG "config.json"
#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define MIN_MAPPING_TEXT 7  /* bytes of the shortest mapping in the index: "":"x", */
#define METADATA_TEXT 65536 /* bytes of the index's `metadata` */
#define NAME_TEXT 2048      /* bytes of a shard's name as the index writes it */

#define MAX_SHARD_NAME 255 /* bytes, what a directory can hold */

struct shard {
    char name[MAX_SHARD_NAME + 1];
    struct attn_safetensors *file; /* NULL until needed */
};

struct mapping {
    const char *tensor;
    size_t shard;
};

struct attn_checkpoint {
    int directory;
    char *config; /* [config_length]; NULL: said elsewhere, as by the keys of a GGUF file */
    size_t config_length;
    char *index; /* text of the index; NULL for a single file */
    size_t index_length;
    struct mapping *weight_map; /* [num_mappings], by tensor */
    size_t num_mappings, capacity;
    struct shard *shards; /* [max_shards] */
    size_t *by_name;      /* [max_shards] numbers of shards in the order of their names */
    size_t num_shards, max_shards;
    struct attn_npz *npz; /* the tensors, where they are in one such file; there are no shards */
    struct attn_gguf_model *gguf;      /* the same of GGUF files */
    struct attn_quantized **quantized; /* [num_quantized] */
    size_t num_quantized, quantized_room, quantized_bytes;
};

/* ---- The index ---- */

/* Makes room for `max` shards, of which there are none yet. */
static enum attn_status make_shards(struct attn_checkpoint *checkpoint, size_t max,
                                    struct attn_error *error)
{
    attn_free(checkpoint->shards);
    attn_free(checkpoint->by_name);
    checkpoint->max_shards = max;
    checkpoint->shards = attn_calloc(max, sizeof *checkpoint->shards);
    checkpoint->by_name = attn_calloc(max, sizeof *checkpoint->by_name);
    return checkpoint->shards != NULL && checkpoint->by_name != NULL
               ? ATTN_OK
               : attn_fail_memory(error, max * sizeof(struct shard));
}

/* The place of the name among by_name, or the place where it belongs; *found says which. */
static size_t find_name(bool *found, const struct attn_checkpoint *checkpoint, const char *name)
{
    size_t low = 0, high = checkpoint->num_shards;
    *found = false;
    while (low < high && !*found) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(checkpoint->shards[checkpoint->by_name[middle]].name, name);
        *found = order == 0;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return high;
}

/* The number of the shard of that name; a new name is added. */
static enum attn_status find_shard(size_t *out, struct attn_checkpoint *checkpoint,
                                   const char *name, struct attn_error *error)
{
    bool found;
    size_t at = find_name(&found, checkpoint, name), *entry = &checkpoint->by_name[at];
    if (found) {
        *out = *entry;
        return ATTN_OK;
    }
    if (name[0] == '\0' || strlen(name) > MAX_SHARD_NAME || strchr(name, '/') != NULL ||
        strstr(name, "..") != NULL || strcmp(name, ".") == 0)
        return attn_fail(error, ATTN_MALFORMED, INDEX,
                         INDEX ": shard name '%.96s' is not a plain file name", name);
    if (checkpoint->num_shards == checkpoint->max_shards)
        return attn_fail(error, ATTN_MALFORMED, INDEX, INDEX ": more than %d shards",
                         ATTN_CHECKPOINT_MAX_SHARDS);
    memmove(entry + 1, entry, (checkpoint->num_shards - at) * sizeof *entry);
    *out = *entry = checkpoint->num_shards++;
    memcpy(checkpoint->shards[*out].name, name, strlen(name) + 1);
    return ATTN_OK;
}

static enum attn_status walk_weight_map(struct attn_checkpoint *checkpoint,
                                        struct attn_json_members *m, struct attn_error *error)
{
    enum attn_status status = ATTN_OK;
    attn_json_members_enter(m);
    for (const char *tensor; (tensor = attn_json_members_next(m)) != NULL;) {
        if (checkpoint->num_mappings == checkpoint->capacity)
            m->status = ATTN_MALFORMED;
        json_t *value = attn_json_members_value(m, NAME_TEXT);
        if (value == NULL)
            break;
        struct mapping *mapping = &checkpoint->weight_map[checkpoint->num_mappings++];
        mapping->tensor = tensor;
        if (json_is_string(value))
            status = find_shard(&mapping->shard, checkpoint, json_string_value(value), error);
        else
            m->status = ATTN_MALFORMED;
        json_decref(value);
        if (status != ATTN_OK)
            return status;
    }
    return ATTN_OK;
}

static enum attn_status walk_index(struct attn_checkpoint *checkpoint, struct attn_error *error)
{
    struct attn_json_members m = {.text = checkpoint->index, .length = checkpoint->index_length};
    bool mapped = false;
    attn_json_members_enter(&m);
    for (const char *key; (key = attn_json_members_next(&m)) != NULL;) {
        const bool is_map = strcmp(key, "weight_map") == 0;
        enum attn_status status = ATTN_OK;
        if (is_map && mapped)
            m.status = ATTN_MALFORMED;
        else if (is_map)
            status = walk_weight_map(checkpoint, &m, error);
        else
            json_decref(attn_json_members_value(&m, METADATA_TEXT));
        if (status != ATTN_OK)
            return status;
        mapped = mapped || is_map;
    }
    attn_json_members_finish(&m);
    if (m.status == ATTN_NO_MEMORY)
        return attn_fail_memory(error, m.length);
    if (m.status != ATTN_OK)
        return attn_fail(error, ATTN_MALFORMED, INDEX, INDEX ": not a valid index, near byte %zu",
                         m.at);
    if (!mapped)
        return attn_fail(error, ATTN_MALFORMED, "weight_map", INDEX ": no weight_map");
    const struct mapping *twice = attn_sort_names(checkpoint->weight_map, checkpoint->num_mappings,
                                                  sizeof *checkpoint->weight_map);
    return twice == NULL ? ATTN_OK
                         : attn_fail(error, ATTN_MALFORMED, twice->tensor,
                                     INDEX ": tensor '%.96s' is named twice", twice->tensor);
}

static enum attn_status open_index(struct attn_checkpoint *checkpoint, struct attn_error *error)
{
    enum attn_status status =
        attn_file_slurp(&checkpoint->index, &checkpoint->index_length, checkpoint->directory, INDEX,
                        ATTN_CHECKPOINT_MAX_INDEX, error);
    if (status == ATTN_NOT_FOUND)
        return attn_fail_absent(checkpoint->directory, SINGLE, "neither " SINGLE " nor " INDEX,
                                error);
    if (status != ATTN_OK)
        return status;
    checkpoint->capacity = checkpoint->index_length / MIN_MAPPING_TEXT + 1;
    checkpoint->weight_map = attn_alloc(checkpoint->capacity, sizeof *checkpoint->weight_map);
    if (checkpoint->weight_map == NULL)
        return attn_fail_memory(error, checkpoint->capacity * sizeof *checkpoint->weight_map);
    status =
        make_shards(checkpoint, attn_min(checkpoint->capacity, ATTN_CHECKPOINT_MAX_SHARDS), error);
    return status == ATTN_OK ? walk_index(checkpoint, error) : status;
}

/* ---- Opening ---- */

/* Opens a file that has all tensors. */
static enum attn_status open_single(struct attn_checkpoint *checkpoint, const char *name,
                                    struct attn_error *error)
{
    enum attn_status status = make_shards(checkpoint, 1, error);
    if (status != ATTN_OK)
        return status;
    status = attn_safetensors_open(&checkpoint->shards[0].file, checkpoint->directory, name, error);
    checkpoint->num_shards = status == ATTN_OK;
    return status;
}

static enum attn_status read_config(struct attn_checkpoint *checkpoint, struct attn_error *error)
{
    enum attn_status status =
        attn_file_slurp(&checkpoint->config, &checkpoint->config_length, checkpoint->directory,
                        CONFIG, ATTN_CHECKPOINT_MAX_CONFIG, error);
    if (status == ATTN_NOT_FOUND)
        return attn_fail_absent(checkpoint->directory, CONFIG, CONFIG ": No such file or directory",
                                error);
    if (status == ATTN_OK && strchr("{[ \t\r\n", checkpoint->config[0]) == NULL)
        return attn_check_kind(checkpoint->config, checkpoint->config_length, CONFIG, "JSON",
                               error);
    return status;
}

/* Opens the single file of a directory or, in its absence, the index. */
static enum attn_status open_directory(struct attn_checkpoint *checkpoint, bool configured,
                                       struct attn_error *error)
{
    static const char *const before[] = {CONFIG, SINGLE,
                                         INDEX}; /* any of them counts before GGUF */
    char gguf[NAME_MAX + 1];
    enum attn_status status = attn_refuse_adapter(checkpoint->directory, error);
    if (status == ATTN_OK)
        status = attn_find_gguf(gguf, checkpoint->directory, before, configured ? 3 : 1, error);
    if (status == ATTN_OK && gguf[0] != '\0')
        return attn_gguf_model_open(&checkpoint->gguf, checkpoint->directory, gguf, error);
    if (status == ATTN_OK && !configured)
        status = read_config(checkpoint, error);
    if (status != ATTN_OK)
        return status;
    status = open_single(checkpoint, SINGLE, error);
    return status == ATTN_NOT_FOUND ? open_index(checkpoint, error) : status;
}

/* Opens the directory that the file `path` is in; *name becomes its name there. */
static enum attn_status open_parent(const char **name, struct attn_checkpoint *checkpoint,
                                    const char *path, struct attn_error *error)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    char *parent = attn_alloc(length + 2, 1);
    if (parent == NULL)
        return attn_fail_memory(error, length + 2);
    memcpy(parent, length > 0 ? path : ".", attn_max(length, 1));
    parent[attn_max(length, 1)] = '\0';
    checkpoint->directory = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    attn_free(parent);
    *name = path + length;
    return checkpoint->directory >= 0
               ? ATTN_OK
               : attn_fail(error, ATTN_NOT_FOUND, "path", "the file's directory cannot be opened");
}

/* Reads the first bytes of a file; what is beyond its end is 0. */
static enum attn_status read_start(char start[9], int directory, const char *name,
                                   struct attn_error *error)
{
    int file;
    size_t size;
    memset(start, 0, 9);
    enum attn_status status = attn_file_open(&file, &size, directory, name, error);
    if (status != ATTN_OK)
        return status;
    status = attn_file_read(start, file, name, 0, attn_min(size, 9), error);
    close(file);
    return status;
}

/* Opens the single file `path`: GGUF, an .npz archive or a safetensors file by its first bytes.  A
 * ZIP archive's ninth byte is of its compression method; "PK" may be the length of a safetensors
 * header too, which then begins with that byte. */
static enum attn_status open_file(struct attn_checkpoint *checkpoint, const char *path,
                                  bool configured, struct attn_error *error)
{
    const char *name = "";
    char start[9];
    enum attn_status status = open_parent(&name, checkpoint, path, error);
    if (status == ATTN_OK)
        status = read_start(start, checkpoint->directory, name, error);
    if (status == ATTN_OK && memcmp(start, "GGUF", 4) == 0)
        return attn_gguf_model_open(&checkpoint->gguf, checkpoint->directory, name, error);
    if (status == ATTN_OK && memcmp(start, "PK", 2) == 0 && start[8] != '{')
        status = attn_npz_open(&checkpoint->npz, checkpoint->directory, name, error);
    else if (status == ATTN_OK)
        status = open_single(checkpoint, name, error);
    if (status != ATTN_OK || configured)
        return status;
    return attn_fail(error, ATTN_MALFORMED, "config",
                     "a single file of tensors needs a configuration beside it");
}

enum attn_status attn_checkpoint_open(struct attn_checkpoint **out, const char *path,
                                      bool configured, struct attn_error *error)
{
    char text[64];
    struct attn_checkpoint *checkpoint = attn_calloc(1, sizeof *checkpoint);
    if (checkpoint == NULL)
        return attn_fail_memory(error, sizeof *checkpoint);
    enum attn_status status = ATTN_OK;
    checkpoint->directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (checkpoint->directory >= 0)
        status = open_directory(checkpoint, configured, error);
    else if (errno == ENOTDIR)
        status = open_file(checkpoint, path, configured, error);
    else if (errno == ENOENT)
        status = attn_fail_no_path(path, error);
    else
        status = attn_fail(error, ATTN_IO, "path", "the directory cannot be opened: %s",
                           strerror_r(errno, text, sizeof text));
    if (status != ATTN_OK) {
        attn_checkpoint_close(checkpoint);
        return status;
    }
    *out = checkpoint;
    return ATTN_OK;
}

void attn_checkpoint_close(struct attn_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return;
    for (size_t i = 0; i < checkpoint->num_shards; i++)
        attn_safetensors_close(checkpoint->shards[i].file);
    attn_npz_close(checkpoint->npz);
    attn_gguf_model_close(checkpoint->gguf);
    for (size_t i = 0; i < checkpoint->num_quantized; i++) {
        attn_free(checkpoint->quantized[i]->group_of);
        attn_free(checkpoint->quantized[i]);
    }
    attn_free(checkpoint->quantized);
    attn_free(checkpoint->shards);
    attn_free(checkpoint->by_name);
    attn_free(checkpoint->weight_map);
    attn_free(checkpoint->index);
    attn_free(checkpoint->config);
    if (checkpoint->directory >= 0)
        close(checkpoint->directory);
    attn_free(checkpoint);
}

const char *attn_checkpoint_config(const struct attn_checkpoint *checkpoint, size_t *length)
{
    const struct attn_gguf_model *gguf = checkpoint->gguf;
    *length = gguf != NULL ? gguf->config.length : checkpoint->config_length;
    return gguf != NULL ? gguf->config.text : checkpoint->config;
}

enum attn_status attn_checkpoint_text(char **out, size_t *length,
                                      const struct attn_checkpoint *checkpoint, const char *name,
                                      struct attn_error *error)
{
    return attn_file_slurp(out, length, checkpoint->directory, name, ATTN_CHECKPOINT_MAX_CONFIG,
                           error);
}

/* Looks `name` up in the shard that the index maps it to, which is opened if need be. */
static enum attn_status find_mapped(struct attn_tensor *out, struct attn_checkpoint *checkpoint,
                                    const char *name, struct attn_error *error)
{
    const struct mapping *mapping = attn_find_name(
        name, checkpoint->weight_map, checkpoint->num_mappings, sizeof *checkpoint->weight_map);
    if (mapping == NULL)
        return ATTN_OK;
    struct shard *shard = &checkpoint->shards[mapping->shard];
    if (shard->file == NULL) {
        enum attn_status status =
            attn_safetensors_open(&shard->file, checkpoint->directory, shard->name, error);
        if (status == ATTN_NOT_FOUND)
            return attn_fail(error, status, shard->name,
                             "%.96s is missing, which " INDEX
                             " names: the checkpoint is not whole, fetch it again",
                             shard->name);
        if (status != ATTN_OK)
            return status;
    }
    out->file = shard->file;
    out->entry = attn_safetensors_find(shard->file, name);
    if (out->entry == NULL)
        return attn_fail(error, ATTN_MALFORMED, name,
                         "tensor '%.96s' is not in %.96s, where the index puts it", name,
                         shard->name);
    return ATTN_OK;
}

enum attn_status attn_checkpoint_find(struct attn_tensor *out, struct attn_checkpoint *checkpoint,
                                      const char *name, struct attn_error *error)
{
    *out = (struct attn_tensor){.npz = checkpoint->npz, .gguf = checkpoint->gguf};
    if (checkpoint->gguf != NULL) {
        out->entry = attn_gguf_model_find(checkpoint->gguf, name);
        return ATTN_OK;
    }
    if (checkpoint->npz != NULL)
        return attn_npz_find(&out->entry, checkpoint->npz, name, error);
    if (checkpoint->index != NULL)
        return find_mapped(out, checkpoint, name, error);
    out->file = checkpoint->shards[0].file;
    out->entry = attn_safetensors_find(out->file, name);
    return ATTN_OK;
}

enum attn_status attn_tensor_read_f32(float *out, const struct attn_tensor *tensor, size_t first,
                                      size_t count, struct attn_error *error)
{
    if (tensor->npz != NULL)
        return attn_npz_read_f32(out, tensor->npz, tensor->entry, first, count, error);
    if (tensor->quantized != NULL)
        return attn_quantized_read_f32(out, tensor->quantized, first, count, error);
    if (tensor->gguf != NULL)
        return attn_gguf_model_read_f32(out, tensor->gguf, tensor->entry, first, count, error);
    return attn_safetensors_read_f32(out, tensor->file, tensor->entry, first, count, error);
}

enum attn_status attn_checkpoint_keep(struct attn_checkpoint *checkpoint,
                                      struct attn_quantized *weight, const char *name,
                                      struct attn_error *error)
{
    struct attn_quantized **list = attn_grow(checkpoint->quantized, checkpoint->num_quantized,
                                             &checkpoint->quantized_room, sizeof *list, error);
    if (list == NULL)
        return ATTN_NO_MEMORY;
    checkpoint->quantized = list;
    snprintf(weight->name, sizeof weight->name, "%s", name);
    snprintf(weight->label, sizeof weight->label, "%u-bit codes", weight->bits);
    weight->dtype = (struct attn_safetensors_dtype){weight->label, weight->bits, true};
    weight->entry = (struct attn_tensor_entry){.name = weight->name,
                                               .dtype = &weight->dtype,
                                               .ndim = 2,
                                               .shape = {weight->out, weight->in}};
    checkpoint->quantized[checkpoint->num_quantized++] = weight;
    checkpoint->quantized_bytes +=
        sizeof *weight + (weight->group_of != NULL ? weight->in * sizeof *weight->group_of : 0);
    return ATTN_OK;
}

const struct attn_quantized *attn_checkpoint_quantized(const struct attn_checkpoint *checkpoint,
                                                       const char *name)
{
    for (size_t i = 0; i < checkpoint->num_quantized; i++)
        if (strcmp(checkpoint->quantized[i]->name, name) == 0)
            return checkpoint->quantized[i];
    return NULL;
}

size_t attn_checkpoint_scratch(const struct attn_checkpoint *checkpoint)
{
    size_t bytes = 0;
    for (size_t i = 0; checkpoint != NULL && i < checkpoint->num_quantized; i++)
        bytes = attn_max(bytes, attn_quantized_scratch(checkpoint->quantized[i]));
    return bytes;
}

int attn_tensor_extent(size_t *offset, size_t *bytes, const struct attn_tensor *tensor)
{
    if (tensor->quantized != NULL) {
        const struct attn_stored *codes = &tensor->quantized->codes;
        *bytes = codes->entry->end - codes->entry->begin;
        *offset = codes->file->data_begin + codes->entry->begin;
        return codes->file->file;
    }
    *bytes = tensor->entry->end - tensor->entry->begin;
    *offset = tensor->entry->begin;
    if (tensor->gguf != NULL)
        return attn_gguf_model_entry_file(tensor->gguf, tensor->entry);
    if (tensor->npz == NULL) {
        *offset += tensor->file->data_begin;
        return tensor->file->file;
    }
    *offset = attn_npz_offset(bytes, tensor->entry);
    return attn_npz_descriptor(tensor->npz);
}

enum attn_status attn_checkpoint_check_type(const struct attn_checkpoint *checkpoint,
                                            const char *model_type, struct attn_error *error)
{
    return checkpoint->gguf == NULL
               ? ATTN_OK
               : attn_gguf_model_check_type(checkpoint->gguf, model_type, error);
}

bool attn_checkpoint_is_gguf(const struct attn_checkpoint *checkpoint)
{
    return checkpoint->gguf != NULL;
}

size_t attn_checkpoint_memory(const struct attn_checkpoint *checkpoint)
{
    if (checkpoint == NULL)
        return 0;
    size_t bytes =
        checkpoint->config_length + checkpoint->index_length +
        checkpoint->capacity * sizeof *checkpoint->weight_map +
        checkpoint->max_shards * (sizeof *checkpoint->shards + sizeof *checkpoint->by_name) +
        attn_npz_memory(checkpoint->npz) + attn_gguf_model_memory(checkpoint->gguf) +
        checkpoint->quantized_bytes + checkpoint->quantized_room * sizeof *checkpoint->quantized;
    for (size_t i = 0; i < checkpoint->num_shards; i++)
        bytes += attn_safetensors_memory(checkpoint->shards[i].file);
    return bytes;
}

/* ---- Names: the index and each open file have them in order ---- */

void attn_checkpoint_visit(const struct attn_checkpoint *checkpoint, const char *prefix,
                           attn_visit_name *visit, void *context)
{
    bool goes_on = attn_visit_names(checkpoint->weight_map, checkpoint->num_mappings,
                                    sizeof *checkpoint->weight_map, prefix, visit, context);
    if (goes_on && checkpoint->npz != NULL)
        goes_on = attn_npz_visit(checkpoint->npz, prefix, visit, context);
    if (goes_on && checkpoint->gguf != NULL)
        goes_on = attn_visit_names(checkpoint->gguf->tensors, checkpoint->gguf->num_tensors,
                                   sizeof *checkpoint->gguf->tensors, prefix, visit, context);
    for (size_t i = 0; goes_on && i < checkpoint->num_shards; i++) {
        const struct attn_safetensors *file = checkpoint->shards[i].file;
        goes_on = file == NULL || attn_visit_names(file->entries, file->count,
                                                   sizeof *file->entries, prefix, visit, context);
    }
}

void attn_checkpoint_name(char out[ATTN_SAFETENSORS_MAX_NAME],
                          const struct attn_checkpoint *checkpoint, const char *name)
{
    if (checkpoint->gguf != NULL)
        attn_gguf_model_name(out, checkpoint->gguf, name);
    else
        snprintf(out, ATTN_SAFETENSORS_MAX_NAME, "%s", name);
}

struct list {
    const struct attn_checkpoint *checkpoint;
    char *out;
    size_t size, at;
};

static bool add_name(void *context, const char *name)
{
    struct list *list = context;
    char own[ATTN_SAFETENSORS_MAX_NAME];
    attn_checkpoint_name(own, list->checkpoint, name);
    if (list->at < list->size)
        list->at += (size_t)snprintf(list->out + list->at, list->size - list->at, "%s%.48s",
                                     list->at > 0 ? ", " : "", own);
    return list->at < list->size;
}

void attn_checkpoint_list(char *out, size_t size, const struct attn_checkpoint *checkpoint,
                          const char *prefix)
{
    struct list list = {.checkpoint = checkpoint, .out = out, .size = size};
    out[0] = '\0';
    attn_checkpoint_visit(checkpoint, prefix, add_name, &list);
    if (list.at >= size && size > 4)
        memcpy(out + size - 4, "...", 4);
}

/* ---- What tells this content from another ---- */

#define SAMPLES 64 /* of a file, about, at equal distances; all of it where it is short */
#define SAMPLE_BYTES ((size_t)4096)

static bool add_samples(struct attn_checksum *sum, int file, size_t size)
{
    char bytes[SAMPLE_BYTES];
    const size_t distance = attn_max(size / SAMPLES / SAMPLE_BYTES, 1) * SAMPLE_BYTES;
    for (size_t at = 0; at < size; at += distance) {
        const size_t count = attn_min(size - at, SAMPLE_BYTES);
        if (attn_file_read(bytes, file, "checkpoint", at, count, NULL) != ATTN_OK)
            return false;
        attn_checksum_add(sum, bytes, count);
    }
    return true;
}

/* A change sets the time st_ctim, which no program can set.  In images of file systems (squashfs,
 * EROFS) and on some network storage that time is the image's or the object's own, so that other
 * content may have the same: samples tell one checkpoint from another there. */
static bool stamp_file(struct attn_checksum *sum, time_t *changed, int file)
{
    struct stat info;
    if (fstat(file, &info) != 0 || !add_samples(sum, file, (size_t)info.st_size))
        return false;
    attn_checksum_add_stat(sum, &info);
    *changed = info.st_ctim.tv_sec > *changed ? info.st_ctim.tv_sec : *changed;
    return true;
}

bool attn_checkpoint_stamp(struct attn_checksum *sum, time_t *changed,
                           const struct attn_checkpoint *checkpoint)
{
    *changed = 0;
    attn_checksum_add(sum, checkpoint->index, checkpoint->index_length);
    if (checkpoint->npz != NULL)
        return stamp_file(sum, changed, attn_npz_descriptor(checkpoint->npz));
    const size_t num_splits = checkpoint->gguf != NULL ? checkpoint->gguf->num_splits : 0;
    for (size_t split = 0; split < num_splits; split++)
        if (!stamp_file(sum, changed, checkpoint->gguf->splits[split]->file))
            return false;
    for (size_t i = 0; i < checkpoint->num_shards; i++) {
        const struct attn_safetensors *file = checkpoint->shards[i].file;
        attn_checksum_add(sum, &i, sizeof i);
        if (file != NULL && !stamp_file(sum, changed, file->file))
            return false;
    }
    return true;
}
