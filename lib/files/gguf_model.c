/* gguf_model.c: parts of a model -> one table of tensors by their published names; numbers as they
 * were published. */
#include "files/gguf_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basics/mem.h"
#include "basics/status.h"
#include "files/file.h"
#include "files/gguf_config.h"

#define MAX_NAME ATTN_SAFETENSORS_MAX_NAME
#define MAX_PARTS 10000
#define PART_DIGITS 5 /* of each number in NAME-00001-of-00003.gguf */

struct published {
    const char *name; /* first: attn_sort_names; an allocation of its own */
    const struct attn_tensor_entry *entry;
};

struct attn_gguf_model {
    struct attn_gguf **parts; /* [num_parts] */
    size_t num_parts;
    struct attn_gguf_config config;
    struct published *tensors; /* [num_tensors], by name */
    size_t num_tensors, names; /* bytes of the names */
};

/* ---- Names ----------------------------------------------------------------------------------- */

/* Norms beside attention, not of it. */
static const char *const layer_norms[] = {"attn_norm", "attn_norm_2", "attn_output_norm",
                                          "attn_post_norm"};

/* Whether `name` is the word, with ".weight" or ".bias" or nothing after it. */
static bool begins_with_word(const char *name, const char *word)
{
    const size_t length = strlen(word);
    return strncmp(name, word, length) == 0 && (name[length] == '.' || name[length] == '\0');
}

/* Writes the published name of a tensor of the file, its own where it has no other.  What else
 * belongs to attention there becomes a name of its module, in which it will be refused. */
static void publish(char out[MAX_NAME], const struct attn_gguf_architecture *architecture,
                    const char *name)
{
    static const char block[] = "blk.";
    const char *const number = name + sizeof block - 1;
    snprintf(out, MAX_NAME, "%s", name);
    if (strncmp(name, block, sizeof block - 1) != 0)
        return;
    const size_t digits = strspn(number, "0123456789");
    const char *const rest = number + digits + 1;
    if (digits == 0 || number[digits] != '.')
        return;
    for (size_t i = 0; i < sizeof layer_norms / sizeof layer_norms[0]; i++)
        if (begins_with_word(rest, layer_norms[i]))
            return;
    const struct attn_gguf_name *n = architecture->names;
    while (n->file != NULL && !begins_with_word(rest, n->file))
        n++;
    if (n->file != NULL || strncmp(rest, "attn_", 5) == 0)
        snprintf(out, MAX_NAME, "%s%.*s%s%s%s", architecture->module, (int)digits, number,
                 architecture->member, n->file != NULL ? n->published : "",
                 n->file != NULL ? rest + strlen(n->file) : rest);
}

/* Lists the tensors of all parts. */
static enum attn_status list_tensors(struct attn_gguf_model *model, struct attn_error *error)
{
    size_t count = 0;
    for (size_t p = 0; p < model->num_parts; p++)
        count += attn_gguf_count(model->parts[p]);
    model->tensors = attn_calloc(count + 1, sizeof *model->tensors);
    if (model->tensors == NULL)
        return attn_fail_memory(error, (count + 1) * sizeof *model->tensors);
    for (size_t p = 0; p < model->num_parts; p++)
        for (size_t i = 0; i < attn_gguf_count(model->parts[p]); i++) {
            char name[MAX_NAME];
            struct published *tensor = &model->tensors[model->num_tensors];
            tensor->entry = attn_gguf_entry(model->parts[p], i);
            publish(name, model->config.architecture, tensor->entry->name);
            const size_t size = strlen(name) + 1;
            char *copy = attn_alloc(size, 1);
            if (copy == NULL)
                return attn_fail_memory(error, size);
            tensor->name = memcpy(copy, name, size);
            model->names += size;
            model->num_tensors++;
        }
    const struct published *twice = attn_sort_names(model->tensors, count, sizeof *model->tensors);
    return twice == NULL ? ATTN_OK
                         : attn_fail(error, ATTN_MALFORMED, twice->entry->name,
                                     "%.96s is in two parts of the model", twice->entry->name);
}

/* ---- Opening --------------------------------------------------------------------------------- */

static size_t size_of_key(const struct attn_gguf *file, const char *key, size_t absent)
{
    const struct attn_gguf_value *value = attn_gguf_find_value(file, key);
    if (value == NULL)
        return absent;
    const double number =
        value->kind == ATTN_GGUF_NUMBER && value->count == 1 ? *value->numbers : -1;
    return number >= 0 && number <= MAX_PARTS ? (size_t)number : MAX_PARTS + 1;
}

/* Opens the parts after the first, whose name must end in -00001-of-<their number>.gguf. */
static enum attn_status open_parts(struct attn_gguf_model *model, int directory, const char *name,
                                   struct attn_error *error)
{
    const size_t count = size_of_key(model->parts[0], "split.count", 1);
    const size_t length = strlen(name);
    char end[32], part[MAX_NAME];
    snprintf(end, sizeof end, "-%0*d-of-%0*zu.gguf", PART_DIGITS, 1, PART_DIGITS, count);
    if (count <= 1)
        return ATTN_OK;
    if (count > MAX_PARTS || size_of_key(model->parts[0], "split.no", 0) != 0)
        return attn_fail(error, ATTN_MALFORMED, name,
                         "%.64s is not the first part of a split model: name that one", name);
    if (length < strlen(end) || length >= sizeof part ||
        strcmp(name + length - strlen(end), end) != 0)
        return attn_fail(error, ATTN_MALFORMED, name,
                         "%.64s is the first of %zu parts, whose name ends in %s", name, count,
                         end);
    struct attn_gguf **parts = attn_calloc(count, sizeof *parts);
    if (parts == NULL)
        return attn_fail_memory(error, count * sizeof *parts);
    parts[0] = model->parts[0];
    attn_free(model->parts);
    model->parts = parts;
    for (size_t p = 1; p < count; p++) {
        snprintf(part, sizeof part, "%.*s-%0*zu-of-%0*zu.gguf", (int)(length - strlen(end)), name,
                 PART_DIGITS, p + 1, PART_DIGITS, count);
        enum attn_status status = attn_gguf_open(&parts[p], directory, part, error);
        if (status != ATTN_OK)
            return status;
        model->num_parts++;
        if (size_of_key(parts[p], "split.no", 0) != p ||
            size_of_key(parts[p], "split.count", 0) != count)
            return attn_fail(error, ATTN_MALFORMED, part,
                             "%.64s does not say that it is part %zu of %zu (split.no, "
                             "split.count)",
                             part, p + 1, count);
    }
    return ATTN_OK;
}

enum attn_status attn_gguf_model_open(struct attn_gguf_model **out, int directory, const char *name,
                                      struct attn_error *error)
{
    struct attn_gguf_model *model = attn_calloc(1, sizeof *model);
    if (model == NULL || (model->parts = attn_calloc(1, sizeof *model->parts)) == NULL) {
        attn_free(model);
        return attn_fail_memory(error, sizeof *model + sizeof *model->parts);
    }
    enum attn_status status = attn_gguf_open(&model->parts[0], directory, name, error);
    model->num_parts = status == ATTN_OK;
    if (status == ATTN_OK)
        status = open_parts(model, directory, name, error);
    if (status == ATTN_OK)
        status = attn_gguf_config(&model->config, model->parts[0], error);
    if (status == ATTN_OK)
        status = list_tensors(model, error);
    if (status == ATTN_OK)
        *out = model;
    else
        attn_gguf_model_close(model);
    return status;
}

void attn_gguf_model_close(struct attn_gguf_model *model)
{
    if (model == NULL)
        return;
    for (size_t p = 0; p < model->num_parts; p++)
        attn_gguf_close(model->parts[p]);
    for (size_t i = 0; i < model->num_tensors; i++)
        attn_free((void *)model->tensors[i].name);
    attn_free(model->parts);
    attn_free(model->tensors);
    attn_free(model->config.text);
    attn_free(model);
}

size_t attn_gguf_model_memory(const struct attn_gguf_model *model)
{
    if (model == NULL)
        return 0;
    size_t bytes = sizeof *model + ATTN_GGUF_MAX_CONFIG + model->names +
                   model->num_tensors * sizeof *model->tensors;
    for (size_t p = 0; p < model->num_parts; p++)
        bytes += sizeof *model->parts + attn_gguf_memory(model->parts[p]);
    return bytes;
}

const char *attn_gguf_model_config(size_t *length, const struct attn_gguf_model *model)
{
    *length = model->config.length;
    return model->config.text;
}

int attn_gguf_model_file(const struct attn_gguf_model *model, size_t part)
{
    return part < model->num_parts ? attn_gguf_file(model->parts[part]) : -1;
}

bool attn_gguf_model_visit(const struct attn_gguf_model *model, const char *prefix,
                           attn_visit_name *visit, void *context)
{
    return attn_visit_names(model->tensors, model->num_tensors, sizeof *model->tensors, prefix,
                            visit, context);
}

const struct attn_tensor_entry *attn_gguf_model_find(const struct attn_gguf_model *model,
                                                     const char *name)
{
    const struct published key = {.name = name};
    const struct published *tensor =
        bsearch(&key, model->tensors, model->num_tensors, sizeof key, attn_compare_names);
    return tensor != NULL ? tensor->entry : NULL;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

/* Whether a tensor of the file is "blk.N." and one of these names, up to a NULL. */
static bool is_one_of(const struct attn_tensor_entry *entry, const char *const *names)
{
    const char *last = strchr(entry->name, '.');
    last = last != NULL ? strchr(last + 1, '.') : NULL;
    while (last != NULL && *names != NULL && strcmp(last + 1, *names) != 0)
        names++;
    return last != NULL && *names != NULL;
}

/* The row of the file in which a published row is: of the pair (j, j + width / 2) that rotates
 * together in a head of `width` rows the file has rows 2j and 2j + 1. */
static size_t row_in_file(size_t row, size_t width)
{
    const size_t head = row / width, i = row % width, half = width / 2;
    return head * width + 2 * (i % half) + i / half;
}

enum attn_status attn_gguf_model_read_f32(float *out, const struct attn_gguf_model *model,
                                          const struct attn_tensor_entry *entry, size_t first,
                                          size_t count, struct attn_error *error)
{
    static const char *const rotated[] = {"attn_q.weight", "attn_k.weight", "attn_q.bias",
                                          "attn_k.bias", NULL};
    static const char *const norms[] = {"attn_q_norm.weight", "attn_k_norm.weight", NULL};
    const struct attn_gguf_architecture *architecture = model->config.architecture;
    const size_t width = model->config.head_dim, row = entry->ndim > 1 ? entry->shape[1] : 1;
    if (architecture->permuted && is_one_of(entry, rotated)) {
        if (width % 2 != 0 || entry->shape[0] % width != 0)
            return attn_fail(error, ATTN_SHAPE_MISMATCH, entry->name,
                             "%.96s has %zu rows, wanted are heads of %zu", entry->name,
                             entry->shape[0], width);
        for (size_t done = 0; done < count;) {
            const size_t at = first + done, part = attn_min(row - at % row, count - done);
            enum attn_status status = attn_gguf_read_f32(
                out + done, entry, row_in_file(at / row, width) * row + at % row, part, error);
            if (status != ATTN_OK)
                return status;
            done += part;
        }
        return ATTN_OK;
    }
    enum attn_status status = attn_gguf_read_f32(out, entry, first, count, error);
    if (status == ATTN_OK && architecture->plus_one && is_one_of(entry, norms))
        for (size_t i = 0; i < count; i++)
            out[i] -= 1;
    return status;
}
