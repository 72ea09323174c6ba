/* gguf_model.c: the splits of a model -> one table of tensors by Hugging Face's names; numbers as
 * Hugging Face's checkpoint has them.
 *
 * The map from latents to keys and values, kv_b_proj, is in two tensors: of each head attn_k_b has
 * [latent][key], attn_v_b [value][latent].  Hugging Face's has of each head first the rows of
 * the key, then those of the value. */
#include "files/gguf_model.h"

#include <stdio.h>
#include <string.h>

#include "basics/status.h"
#include "basics/text.h"
#include "files/file.h"

#define MAX_NAME ATTN_SAFETENSORS_MAX_NAME
#define PASSING 8192   /* numbers; at least ATTN_MAX_HEAD_DIM */
#define SPLIT_DIGITS 5 /* of each number in NAME-00001-of-00003.gguf */

/* kv_b_proj, of the two that the file has. */
struct attn_gguf_joined {
    struct attn_tensor_entry entry; /* first; the name, the format and the bytes of attn_k_b */
    const struct attn_tensor_entry *keys, *values;
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

static const char block[] = "blk.";
static const char whole_end[] = ".attn_kv_b.weight", keys_end[] = ".attn_k_b.weight",
                  values_end[] = ".attn_v_b.weight";

/* The name after `start` and a layer's number with a dot, whose digits are *digits; NULL for a name
 * of another kind. */
static const char *after_layer(size_t *digits, const char *name, const char *start)
{
    const size_t length = strlen(start);
    if (strncmp(name, start, length) != 0)
        return NULL;
    *digits = strspn(name + length, "0123456789");
    return *digits > 0 && name[length + *digits] == '.' ? name + length + *digits + 1 : NULL;
}

/* Writes Hugging Face's name of a tensor of the file, its own where it has no other.  What else
 * belongs to attention there becomes a name of its module, in which it will be refused. */
static void hf_name(char out[MAX_NAME], const struct attn_gguf_architecture *architecture,
                    const char *name)
{
    size_t digits;
    const char *const rest = after_layer(&digits, name, block);
    snprintf(out, MAX_NAME, "%s", name);
    if (rest == NULL)
        return;
    for (size_t i = 0; i < ATTN_COUNT(layer_norms); i++)
        if (begins_with_word(rest, layer_norms[i]))
            return;
    const struct attn_gguf_name *n = architecture->names;
    while (n->file != NULL && !begins_with_word(rest, n->file))
        n++;
    if (n->file != NULL || strncmp(rest, "attn_", 5) == 0)
        snprintf(out, MAX_NAME, "%s%.*s%s%s%s", architecture->module, (int)digits,
                 name + sizeof block - 1, architecture->member, n->file != NULL ? n->hf : "",
                 n->file != NULL ? rest + strlen(n->file) : rest);
}

void attn_gguf_model_name(char out[ATTN_SAFETENSORS_MAX_NAME], const struct attn_gguf_model *model,
                          const char *name)
{
    const struct attn_gguf_architecture *architecture = model->config.architecture;
    const char *const member = architecture->member + 1; /* the dot is after the number */
    size_t digits;
    const char *rest = after_layer(&digits, name, architecture->module);
    snprintf(out, MAX_NAME, "%s", name);
    if (rest == NULL || strncmp(rest, member, strlen(member)) != 0)
        return;
    rest += strlen(member);
    const struct attn_gguf_name *n = architecture->names;
    while (n->file != NULL && !begins_with_word(rest, n->hf))
        n++;
    snprintf(out, MAX_NAME, "%s%.*s.%s%s", block, (int)digits, name + strlen(architecture->module),
             n->file != NULL ? n->file : "", n->file != NULL ? rest + strlen(n->hf) : rest);
}

/* Whether the tensor's name ends so; *other becomes the one of the same layer that ends in
 * `other_end`, whichever split it is in. */
static bool find_pair(const struct attn_tensor_entry **other, const struct attn_gguf_model *model,
                      const struct attn_tensor_entry *entry, const char *end, const char *other_end)
{
    char name[MAX_NAME];
    const size_t length = strlen(entry->name), count = strlen(end);
    *other = NULL;
    if (length < count || strcmp(entry->name + length - count, end) != 0)
        return false;
    snprintf(name, sizeof name, "%.*s%s", (int)(length - count), entry->name, other_end);
    *other = attn_gguf_find_in(model->splits, model->num_splits, name);
    return *other != NULL;
}

/* Makes kv_b_proj of the two; *out is its entry. */
static enum attn_status join(const struct attn_tensor_entry **out, struct attn_gguf_model *model,
                             const struct attn_tensor_entry *keys,
                             const struct attn_tensor_entry *values, struct attn_error *error)
{
    const struct attn_gguf_config *config = &model->config;
    const size_t *k = keys->shape, *v = values->shape;
    if (keys->ndim != 3 || values->ndim != 3 || k[0] != config->latent_heads || k[0] != v[0] ||
        k[1] != v[2] || k[2] != config->latent_key || v[1] != config->latent_value ||
        k[2] > ATTN_MAX_HEAD_DIM || v[1] > ATTN_MAX_HEAD_DIM)
        return attn_fail(error, ATTN_SHAPE_MISMATCH, keys->name,
                         "%.96s and attn_v_b are not [heads, latent, key] and [heads, value, "
                         "latent] of %zu heads, keys of %zu and values of %zu",
                         keys->name, config->latent_heads, config->latent_key,
                         config->latent_value);
    struct attn_gguf_joined *joined = &model->joined[model->num_joined++];
    *joined = (struct attn_gguf_joined){*keys, keys, values};
    joined->entry.ndim = 2;
    joined->entry.shape[0] = k[0] * (k[2] + v[1]);
    joined->entry.shape[1] = k[1];
    *out = &joined->entry;
    return ATTN_OK;
}

/* Adds a tensor of the file to the table.  Where the file has kv_b_proj whole, what it has of it
 * besides is the same once more. */
static enum attn_status list_tensor(struct attn_gguf_model *model,
                                    const struct attn_tensor_entry *entry, struct attn_error *error)
{
    char name[MAX_NAME];
    const struct attn_tensor_entry *other;
    enum attn_status status = ATTN_OK;
    if (find_pair(&other, model, entry, values_end, keys_end) ||
        find_pair(&other, model, entry, keys_end, whole_end))
        return ATTN_OK;
    hf_name(name, model->config.architecture, entry->name);
    if (find_pair(&other, model, entry, keys_end, values_end))
        status = join(&entry, model, entry, other, error);
    if (status != ATTN_OK)
        return status;
    const size_t size = strlen(name) + 1;
    char *copy = attn_alloc(size, 1);
    if (copy == NULL)
        return attn_fail_memory(error, size);
    model->tensors[model->num_tensors++] =
        (struct attn_gguf_named){.name = memcpy(copy, name, size), .entry = entry};
    model->names += size + ATTN_ALLOCATION;
    return ATTN_OK;
}

/* Lists the tensors of all splits. */
static enum attn_status list_tensors(struct attn_gguf_model *model, struct attn_error *error)
{
    const struct attn_tensor_entry *other;
    size_t count = 0, pairs = 0;
    for (size_t p = 0; p < model->num_splits; p++) {
        const struct attn_gguf *split = model->splits[p];
        count += split->num_tensors;
        for (size_t i = 0; i < split->num_tensors; i++)
            pairs += find_pair(&other, model, &split->tensors[i].entry, keys_end, values_end);
    }
    model->tensors = attn_calloc(count + 1, sizeof *model->tensors);
    model->joined = attn_calloc(pairs + 1, sizeof *model->joined);
    if (model->tensors == NULL || model->joined == NULL)
        return attn_fail_memory(error, (count + 1) * sizeof *model->tensors);
    for (size_t p = 0; p < model->num_splits; p++)
        for (size_t i = 0; i < model->splits[p]->num_tensors; i++) {
            enum attn_status status =
                list_tensor(model, &model->splits[p]->tensors[i].entry, error);
            if (status != ATTN_OK)
                return status;
        }
    const struct attn_gguf_named *twice =
        attn_sort_names(model->tensors, model->num_tensors, sizeof *model->tensors);
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
    return number >= 0 && number <= ATTN_CHECKPOINT_MAX_SHARDS ? (size_t)number
                                                               : ATTN_CHECKPOINT_MAX_SHARDS + 1;
}

/* Opens the splits after the first, whose name must end in -00001-of-<their number>.gguf. */
static enum attn_status open_splits(struct attn_gguf_model *model, int directory, const char *name,
                                    struct attn_error *error)
{
    const size_t count = size_of_key(model->splits[0], "split.count", 1);
    const size_t length = strlen(name);
    char end[32], split[MAX_NAME];
    snprintf(end, sizeof end, "-%0*d-of-%0*zu.gguf", SPLIT_DIGITS, 1, SPLIT_DIGITS, count);
    if (count <= 1)
        return ATTN_OK;
    if (count > ATTN_CHECKPOINT_MAX_SHARDS)
        return attn_fail(error, ATTN_MALFORMED, name,
                         "%.64s is a part of more than %d: join them into fewer "
                         "(llama-gguf-split --merge)",
                         name, ATTN_CHECKPOINT_MAX_SHARDS);
    if (size_of_key(model->splits[0], "split.no", 0) != 0)
        return attn_fail(error, ATTN_MALFORMED, name,
                         "%.64s is not the first part of a split model: name that one", name);
    if (length < strlen(end) || length >= sizeof split ||
        strcmp(name + length - strlen(end), end) != 0)
        return attn_fail(error, ATTN_MALFORMED, name,
                         "%.64s is the first of %zu parts, whose name ends in %s", name, count,
                         end);
    struct attn_gguf **splits = attn_calloc(count, sizeof *splits);
    if (splits == NULL)
        return attn_fail_memory(error, count * sizeof *splits);
    splits[0] = model->splits[0];
    attn_free(model->splits);
    model->splits = splits;
    for (size_t p = 1; p < count; p++) {
        snprintf(split, sizeof split, "%.*s-%0*zu-of-%0*zu.gguf", (int)(length - strlen(end)), name,
                 SPLIT_DIGITS, p + 1, SPLIT_DIGITS, count);
        enum attn_status status = attn_gguf_open(&splits[p], directory, split, error);
        if (status != ATTN_OK)
            return status;
        model->num_splits++;
        if (size_of_key(splits[p], "split.no", 0) != p ||
            size_of_key(splits[p], "split.count", 0) != count)
            return attn_fail(error, ATTN_MALFORMED, split,
                             "%.64s does not say that it is part %zu of %zu (split.no, "
                             "split.count)",
                             split, p + 1, count);
    }
    return ATTN_OK;
}

enum attn_status attn_gguf_model_open(struct attn_gguf_model **out, int directory, const char *name,
                                      struct attn_error *error)
{
    struct attn_gguf_model *model = attn_calloc(1, sizeof *model);
    if (model == NULL || (model->splits = attn_calloc(1, sizeof *model->splits)) == NULL) {
        attn_free(model);
        return attn_fail_memory(error, sizeof *model + sizeof *model->splits);
    }
    enum attn_status status = attn_gguf_open(&model->splits[0], directory, name, error);
    model->num_splits = status == ATTN_OK;
    if (status == ATTN_OK)
        status = open_splits(model, directory, name, error);
    if (status == ATTN_OK)
        status = attn_gguf_config(&model->config, model->splits, model->num_splits, error);
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
    for (size_t p = 0; p < model->num_splits; p++)
        attn_gguf_close(model->splits[p]);
    for (size_t i = 0; i < model->num_tensors; i++)
        attn_free((void *)model->tensors[i].name);
    attn_free(model->splits);
    attn_free(model->tensors);
    attn_free(model->joined);
    attn_free(model->config.text);
    attn_free(model);
}

size_t attn_gguf_model_memory(const struct attn_gguf_model *model)
{
    if (model == NULL)
        return 0;
    size_t bytes = sizeof *model + ATTN_GGUF_MAX_CONFIG + model->names +
                   model->num_tensors * sizeof *model->tensors +
                   model->num_joined * sizeof *model->joined;
    for (size_t p = 0; p < model->num_splits; p++)
        bytes += sizeof *model->splits + attn_gguf_memory(model->splits[p]);
    return bytes;
}

enum attn_status attn_gguf_model_check_type(const struct attn_gguf_model *model,
                                            const char *model_type, struct attn_error *error)
{
    const struct attn_gguf_architecture *architecture = model->config.architecture;
    const char *const types[] = {architecture->model_type, architecture->other_type,
                                 architecture->more_types};
    for (size_t i = 0; i < ATTN_COUNT(types); i++)
        if (types[i] != NULL && attn_text_word_number(types[i], model_type) != 0)
            return ATTN_OK;
    return attn_fail(error, ATTN_UNSUPPORTED, "model_type",
                     "model_type is '%.64s', and the GGUF file is of the architecture %s: give the "
                     "configuration of the model that it was made from, or none",
                     model_type, architecture->name);
}

/* The two tensors that make the entry; NULL for one that the file has so. */
static const struct attn_gguf_joined *find_joined(const struct attn_gguf_model *model,
                                                  const struct attn_tensor_entry *entry)
{
    for (size_t i = 0; i < model->num_joined; i++)
        if (&model->joined[i].entry == entry)
            return &model->joined[i];
    return NULL;
}

int attn_gguf_model_entry_file(const struct attn_gguf_model *model,
                               const struct attn_tensor_entry *entry)
{
    const struct attn_gguf_joined *joined = find_joined(model, entry);
    const void *tensor = joined != NULL ? joined->keys : entry;
    return ((const struct attn_gguf_tensor *)tensor)->file->file;
}

const struct attn_tensor_entry *attn_gguf_model_find(const struct attn_gguf_model *model,
                                                     const char *name)
{
    const struct attn_gguf_named *tensor =
        attn_find_name(name, model->tensors, model->num_tensors, sizeof *model->tensors);
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

/* The row of the file in which a row of Hugging Face's is: of the pair (j, j + width / 2) that
 * rotates together in a head of `width` rows the file has rows 2j and 2j + 1. */
static size_t row_in_file(size_t row, size_t width)
{
    const size_t head = row / width, i = row % width, half = width / 2;
    return head * width + 2 * (i % half) + i / half;
}

/* Reads a part of rows of keys within one head, which are columns of the file: its rows pass by, as
 * many as the buffer holds at a time.  out has rows from `row` on, the first from `column` on. */
static enum attn_status read_keys(float *out, const struct attn_gguf_joined *joined, size_t head,
                                  size_t row, size_t column, size_t count, struct attn_error *error)
{
    float passing[PASSING];
    const size_t *shape = joined->keys->shape;
    const size_t latents = shape[1], width = shape[2], most = PASSING / width;
    const size_t end = row + attn_ceil_div(column + count, latents);
    for (size_t first = 0; first < latents; first += most) {
        const size_t part = attn_min(most, latents - first);
        enum attn_status status = attn_gguf_read_f32(
            passing, joined->keys, (head * latents + first) * width, part * width, error);
        if (status != ATTN_OK)
            return status;
        for (size_t r = row; r < end; r++)
            for (size_t i = 0; i < part; i++) {
                const size_t at = (r - row) * latents + first + i;
                if (at >= column && at - column < count)
                    out[at - column] = passing[i * width + r];
            }
    }
    return ATTN_OK;
}

static enum attn_status read_joined(float *out, const struct attn_gguf_joined *joined, size_t first,
                                    size_t count, struct attn_error *error)
{
    const size_t latents = joined->entry.shape[1], width = joined->keys->shape[2];
    const size_t rows = width + joined->values->shape[1]; /* of a head */
    enum attn_status status = ATTN_OK;
    for (size_t done = 0; status == ATTN_OK && done < count;) {
        const size_t row = (first + done) / latents, column = (first + done) % latents;
        const size_t head = row / rows, i = row % rows, end = i < width ? width : rows;
        const size_t part = attn_min((end - i) * latents - column, count - done);
        status = i < width
                     ? read_keys(out + done, joined, head, i, column, part, error)
                     : attn_gguf_read_f32(out + done, joined->values,
                                          (head * (rows - width) + i - width) * latents + column,
                                          part, error);
        done += part;
    }
    return status;
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
    const struct attn_gguf_joined *joined = find_joined(model, entry);
    if (joined != NULL)
        return read_joined(out, joined, first, count, error);
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
