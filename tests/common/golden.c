/* golden.c: reading tests/golden and tests/reference.  Each framework has one function that fills a
 * case. */
#include "golden.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "half.h"

#define MAX_CASES 2048

static void die(const char *what, const char *name)
{
    fprintf(stderr, "golden: %s: %s\n", what, name);
    exit(2);
}

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count ? count : 1, size);
    if (memory == NULL)
        die("out of memory", "");
    return memory;
}

/* ---- A folder's tensors ---- */

struct folder {
    char name[256];
    const char *directory;
    char *data; /* the file, whose tensors start at `base` */
    size_t base;
    json_t *header, *cases;
    float *halves; /* all data read as float16, for the tensors of that type */
};

static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        die("cannot open", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = take(*size + 1, 1);
    if (fread(data, 1, *size, file) != *size)
        die("cannot read", path);
    fclose(file);
    return data;
}

static float *read_halves(const char *data, size_t bytes)
{
    float *halves = take(bytes / 2, sizeof *halves);
    uint16_t half;
    for (size_t i = 0; i < bytes / 2; i++) {
        memcpy(&half, data + 2 * i, sizeof half);
        halves[i] = (float)half_value(half);
    }
    return halves;
}

static void open_folder(struct folder *folder, const char *directory, const char *name)
{
    char path[512];
    size_t size;
    uint64_t header;
    folder->directory = directory;
    snprintf(folder->name, sizeof folder->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s/cases.safetensors", directory, name);
    folder->data = read_file(path, &size);
    memcpy(&header, folder->data, sizeof header);
    folder->base = 8 + (size_t)header;
    folder->halves = read_halves(folder->data + folder->base, size - folder->base);
    folder->header = json_loadb(folder->data + 8, (size_t)header, 0, NULL);
    snprintf(path, sizeof path, "%s/%s/cases.json", directory, name);
    folder->cases = json_load_file(path, 0, NULL);
    if (folder->header == NULL || folder->cases == NULL)
        die("not JSON", path);
}

static void close_folder(struct folder *folder)
{
    free(folder->data);
    free(folder->halves);
    json_decref(folder->header);
    json_decref(folder->cases);
}

struct view {
    const char *dtype;
    const void *data;
    size_t rank, shape[4], count;
};

/* Finds the tensor that a case's inputs or expected values name `key`; false where they name
 * none. */
static bool find(struct view *view, const struct folder *folder, json_t *names, const char *key)
{
    json_t *entry =
        json_object_get(folder->header, json_string_value(json_object_get(names, key)) ?: "");
    if (entry == NULL)
        return false;
    json_t *shape = json_object_get(entry, "shape");
    view->dtype = json_string_value(json_object_get(entry, "dtype"));
    view->rank = json_array_size(shape);
    view->count = 1;
    for (size_t i = 0; i < view->rank && i < 4; i++) {
        view->shape[i] = (size_t)json_integer_value(json_array_get(shape, i));
        view->count *= view->shape[i];
    }
    json_int_t begin =
        json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), 0));
    view->data = folder->data + folder->base + begin;
    if (strcmp(view->dtype, "F16") == 0) {
        view->dtype = "F32";
        view->data = folder->halves + begin / 2;
    }
    return true;
}

static void *copy(const struct view *view, size_t size)
{
    void *data = take(view->count, size);
    memcpy(data, view->data, view->count * size);
    return data;
}

static float *floats(const struct folder *folder, json_t *names, const char *key)
{
    struct view view;
    return find(&view, folder, names, key) ? copy(&view, sizeof(float)) : NULL;
}

static size_t number(json_t *object, const char *key)
{
    return (size_t)json_integer_value(json_object_get(object, key));
}

/* ---- Masks ---- */

/* Broadcasts a mask to [B][H][T][S].  The mask has rank 2, rank 3 ([B*H][T][S]) or rank 4, and each
 * of its dimensions is 1 or whole; keys beyond the end of a short mask get `missing`. */
static float *broadcast(const struct golden_case *c, const struct view *view, float missing)
{
    size_t dim[4] = {1, 1, 1, 1}, from = 4 - view->rank;
    float *out = take(c->batch * c->heads * c->queries * c->keys, sizeof(float));
    for (size_t i = 0; i < view->rank; i++)
        dim[from + i] = view->shape[i];
    if (view->rank == 3 && dim[1] == c->batch * c->heads) {
        dim[0] = c->batch;
        dim[1] = c->heads;
    }
    float *o = out;
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->heads; h++)
            for (size_t t = 0; t < c->queries; t++)
                for (size_t s = 0; s < c->keys; s++, o++) {
                    size_t at = (((dim[0] > 1 ? b : 0) * dim[1] + (dim[1] > 1 ? h : 0)) * dim[2] +
                                 (dim[2] > 1 ? t : 0)) *
                                    dim[3] +
                                (dim[3] > 1 ? s : 0);
                    if (dim[3] > 1 && s >= dim[3])
                        *o = missing;
                    else if (strcmp(view->dtype, "BOOL") == 0)
                        *o = ((const uint8_t *)view->data)[at];
                    else
                        *o = ((const float *)view->data)[at];
                }
    return out;
}

/* Sets the case's mask from booleans, of which `allow` means "may attend", or its bias from
 * numbers, which are added to the scores. */
static void set_mask(struct golden_case *c, const struct view *view, bool allow)
{
    bool is_bool = strcmp(view->dtype, "BOOL") == 0;
    float *whole = broadcast(c, view, is_bool ? (float)!allow : -INFINITY);
    size_t n = c->batch * c->heads * c->queries * c->keys;
    if (!is_bool) {
        c->bias = whole;
        return;
    }
    c->mask = take(n, 1);
    for (size_t i = 0; i < n; i++)
        c->mask[i] = (whole[i] != 0) == allow;
    free(whole);
}

/* ---- Hugging Face and PyTorch ---- */

/* Returns the type of the entry's layer as the configuration gives it, "" where it gives none.  The
 * string is borrowed from *config. */
static const char *layer_type(json_t **config, const struct folder *folder, json_t *entry)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/model/config.json", folder->directory, folder->name);
    *config = json_load_file(path, 0, NULL);
    json_t *text = json_object_get(*config, "text_config") ?: *config;
    json_t *types = json_object_get(text, "layer_types");
    json_t *slides = json_object_get(text, "hybrid_layer_pattern"); /* of 0 and 1 */
    if (slides != NULL)
        return json_integer_value(json_array_get(slides, number(entry, "layer"))) == 1
                   ? "sliding_attention"
                   : "full_attention";
    return json_string_value(json_array_get(types, number(entry, "layer"))) ?: "";
}

/* Returns the shape of the entry's stack or layer type; NULL where the folder has one for all. */
static json_t *own_shape(const struct folder *folder, json_t *entry)
{
    json_t *config = NULL, *shapes = json_object_get(folder->cases, "shapes");
    const char *stack = json_string_value(json_object_get(entry, "stack"));
    if (shapes == NULL)
        return NULL;
    const char *key = stack != NULL ? stack : layer_type(&config, folder, entry);
    json_t *shape = json_object_get(shapes, key);
    json_decref(config);
    return shape;
}

static void set_shape(struct golden_case *c, const struct folder *folder, json_t *entry)
{
    json_t *whole = json_object_get(folder->cases, "shape"), *shape = own_shape(folder, entry);
    if (shape == NULL)
        shape = whole;
    c->heads = number(shape, "num_heads");
    c->kv_heads = number(shape, "num_kv_heads");
    c->head_dim = number(shape, "head_dim");
    c->value_dim = number(shape, "v_head_dim") ?: c->head_dim;
    c->hidden = number(shape, "d_model") ?: number(whole, "d_model");
    c->key_size = number(shape, "kdim") ?: c->hidden;
    c->value_size = number(shape, "vdim") ?: c->hidden;
    c->batch = number(entry, "batch");
    c->queries = number(entry, "n");
    c->keys = number(entry, "m") ?: c->queries;
    c->layer = number(entry, "layer");
    snprintf(c->model, sizeof c->model, "%s%s%s", folder->name, c->stack[0] ? "." : "", c->stack);
    snprintf(c->path, sizeof c->path, "%s/%s/model", folder->directory, folder->name);
}

/* Keys of a file that keeps their components in another order are expected in the published one. */
static void set_expected(struct golden_case *c, const struct folder *folder, json_t *entry)
{
    struct view view;
    json_t *expected = json_object_get(entry, "expected");
    c->output = floats(folder, expected, "output");
    c->key_cache = floats(folder, expected, "key_cache");
    if (c->key_cache == NULL)
        c->key_cache = floats(folder, json_object_get(entry, "alternatives"), "key_cache_halves");
    c->value_cache = floats(folder, expected, "value_cache");
    c->average = floats(folder, expected, "attentions_average");
    if (find(&view, folder, expected, "attentions")) {
        c->columns = view.shape[3];
        c->weights = copy(&view, sizeof(float));
    }
}

/* Sets the stack.  attnd treats the decoder's attention over the encoder as a stack of its own,
 * `cross`. */
static void set_stack(struct golden_case *c, json_t *entry)
{
    const char *stack = json_string_value(json_object_get(entry, "stack"));
    const char *kind = json_string_value(json_object_get(entry, "kind"));
    c->cross = kind != NULL && strcmp(kind, "cross_attention") == 0;
    snprintf(c->stack, sizeof c->stack, "%s", stack == NULL ? "" : c->cross ? "cross" : stack);
}

/* Sets the mask of a prefix from the types of tokens: those of type 0 see each other in both
 * directions, the others see what is before them. */
static void set_prefix(struct golden_case *c, const int64_t *types)
{
    const size_t t_all = c->queries, rows = c->batch * c->heads * t_all;
    c->prefix = true;
    c->causal = 0;
    c->mask = take(rows * c->keys, 1);
    for (size_t row = 0; row < rows; row++) {
        const size_t t = row % t_all;
        const int64_t *type = types + row / t_all / c->heads * t_all;
        for (size_t s = 0; s < c->keys; s++)
            c->mask[row * c->keys + s] = s <= t || (type[s] == 0 && type[t] == 0);
    }
}

/* The tokens that a call says to be global have maps and a stack of their own, and see all keys;
 * other tokens see them beside their window.  `global`: which of the two the case compares. */
static void set_global(struct golden_case *c, const struct folder *folder, json_t *entry,
                       const uint8_t *is_global, bool global)
{
    json_t *config = NULL;
    (void)layer_type(&config, folder, entry);
    const size_t t_all = c->queries, rows = c->batch * c->heads * t_all;
    const size_t window = (size_t)json_integer_value(json_array_get(
                              json_object_get(config, "attention_window"), c->layer)) /
                          2;
    json_decref(config);
    for (size_t i = 0; i < c->batch * t_all; i++)
        c->compare_rows[i] = c->compare_rows[i] && is_global[i] == global;
    if (global)
        return;
    c->windowed = true;
    c->left = c->right = -1;
    c->mask = take(rows * t_all, 1);
    for (size_t i = 0; i < rows * t_all; i++) {
        const size_t t = i / t_all % t_all, s = i % t_all;
        c->mask[i] = (s < t ? t - s : s - t) <= window ||
                     is_global[i / t_all / t_all / c->heads * t_all + s];
    }
}

static void load_hf(struct golden_case *c, const struct folder *folder, json_t *entry)
{
    struct view view;
    size_t worst;
    json_t *inputs = json_object_get(entry, "inputs"), *decode = json_object_get(entry, "decode");
    const bool global = c->stack[0] != '\0';
    if (!global)
        set_stack(c, entry);
    set_shape(c, folder, entry);
    c->causal = -1;
    if (json_object_get(entry, "shared_kv_layer") != NULL)
        c->source = number(entry, "shared_kv_layer");
    c->hidden_states = floats(folder, inputs, "hidden_states");
    c->key_states = floats(folder, inputs, "encoder_hidden_states")
                        ?: floats(folder, inputs, "key_hidden_states")
                        ?: floats(folder, inputs, "shared_kv_hidden_states");
    c->value_states = floats(folder, inputs, "value_hidden_states")
                          ?: floats(folder, inputs, "shared_kv_hidden_states");
    if (find(&view, folder, inputs, "encoder_hidden_states"))
        c->key_size = c->value_size = view.shape[2];
    if (find(&view, folder, inputs, "token_type_ids"))
        set_prefix(c, view.data);
    if (find(&view, folder, inputs, c->cross ? "encoder_padding_mask" : "padding_mask"))
        c->padding = copy(&view, 1);
    c->bias = floats(folder, inputs, "attention_bias");
    if (find(&view, folder, inputs, "position_ids"))
        c->positions = copy(&view, sizeof(int64_t));
    for (size_t i = 0; i < 2; i++)
        c->grid[i] = (size_t)json_integer_value(json_array_get(json_object_get(entry, "grid"), i));
    if (find(&view, folder, entry, "compare_rows"))
        c->compare_rows = copy(&view, 1);
    if (find(&view, folder, inputs, "global_attention_mask")) {
        if (c->compare_rows == NULL)
            c->compare_rows = memset(take(view.count, 1), 1, view.count);
        set_global(c, folder, entry, view.data, global);
    }
    set_expected(c, folder, entry);
    c->decode_output = floats(folder, decode, "output");
    c->decodes = decode != NULL;
    c->grows = c->decodes && golden_error(&worst, c->decode_output, c->output,
                                          c->batch * c->queries, c->hidden, c->compare_rows) > 1e-3;
    c->prefill = number(decode, "prefill");
}

static void load_torch(struct golden_case *c, const struct folder *folder, json_t *entry)
{
    struct view view;
    json_t *inputs = json_object_get(entry, "inputs");
    set_shape(c, folder, entry);
    c->causal = -1;
    c->hidden_states = floats(folder, inputs, "query");
    c->key_states = floats(folder, inputs, "key");
    c->value_states = floats(folder, inputs, "value");
    c->cross = c->key_states != NULL;
    if (find(&view, folder, inputs, "key_padding_mask")) {
        c->padding = copy(&view, 1);
        for (size_t i = 0; i < view.count; i++)
            c->padding[i] = !c->padding[i];
    }
    if (find(&view, folder, inputs, "attn_mask"))
        set_mask(c, &view, false);
    set_expected(c, folder, entry);
}

/* ---- ONNX ---- */

/* Returns a copy in the layout [B][heads][N][width] of a tensor of rank 4, which has that layout
 * already, or of rank 3, [B][N][heads*width]. */
static float *heads_first(const struct view *view, size_t heads, size_t *tokens, size_t *width)
{
    if (view->rank == 4) {
        *tokens = view->shape[2];
        *width = view->shape[3];
        return copy(view, sizeof(float));
    }
    *tokens = view->shape[1];
    *width = view->shape[2] / heads;
    float *out = take(view->count, sizeof(float));
    const float *in = view->data;
    for (size_t b = 0; b < view->shape[0]; b++)
        for (size_t s = 0; s < *tokens; s++)
            for (size_t h = 0; h < heads; h++, in += *width)
                memcpy(out + ((b * heads + h) * *tokens + s) * *width, in, *width * sizeof(float));
    return out;
}

/* Returns past [B][G][P][width] followed by new [B][G][N][width]; frees `new`. */
static float *concatenate(const struct view *past, float *new, size_t tokens, size_t width)
{
    size_t pairs = past->shape[0] * past->shape[1], old = past->shape[2] * width;
    float *out = take(pairs * (old + tokens * width), sizeof(float)), *o = out;
    for (size_t i = 0; i < pairs; i++) {
        memcpy(o, (const float *)past->data + i * old, old * sizeof(float));
        memcpy(o + old, new + i *tokens *width, tokens * width * sizeof(float));
        o += old + tokens * width;
    }
    free(new);
    return out;
}

static void load_onnx_rows(struct golden_case *c, const struct folder *folder, json_t *inputs,
                           json_t *attributes)
{
    struct view q, k, v, past_k, past_v;
    find(&q, folder, inputs, "Q");
    find(&k, folder, inputs, "K");
    find(&v, folder, inputs, "V");
    c->batch = q.shape[0];
    c->heads = q.rank == 4 ? q.shape[1] : number(attributes, "q_num_heads");
    c->kv_heads = k.rank == 4 ? k.shape[1] : number(attributes, "kv_num_heads");
    c->query = heads_first(&q, c->heads, &c->queries, &c->head_dim);
    c->key = heads_first(&k, c->kv_heads, &c->keys, &c->head_dim);
    c->value = heads_first(&v, c->kv_heads, &c->keys, &c->value_dim);
    if (find(&past_k, folder, inputs, "past_key") && find(&past_v, folder, inputs, "past_value")) {
        c->key = concatenate(&past_k, c->key, c->keys, c->head_dim);
        c->value = concatenate(&past_v, c->value, c->keys, c->value_dim);
        c->past = past_k.shape[2];
        c->keys += c->past;
    }
}

/* Sets where causality is anchored: at the end of the past, at nonpad_kv_seqlen - T, or at 0. */
static void load_onnx_causality(struct golden_case *c, const struct view *nonpad, size_t past)
{
    c->offsets = take(c->batch, sizeof *c->offsets);
    for (size_t b = 0; b < c->batch; b++)
        c->offsets[b] =
            nonpad ? ((const int64_t *)nonpad->data)[b] - (int64_t)c->queries : (int64_t)past;
    if (nonpad == NULL)
        return;
    c->padding = take(c->batch * c->keys, 1);
    for (size_t b = 0; b < c->batch; b++)
        for (size_t s = 0; s < c->keys; s++)
            c->padding[b * c->keys + s] = (int64_t)s < ((const int64_t *)nonpad->data)[b];
}

static int64_t window_side(json_t *attributes, const char *key)
{
    json_t *side = json_object_get(attributes, key);
    return side != NULL ? json_integer_value(side) : -1;
}

static void load_onnx(struct golden_case *c, const struct folder *folder, json_t *entry)
{
    struct view view;
    size_t tokens, width;
    json_t *inputs = json_object_get(entry, "inputs");
    json_t *expected = json_object_get(entry, "expected");
    json_t *attributes = json_object_get(entry, "attributes");
    load_onnx_rows(c, folder, inputs, attributes);
    c->causal = number(attributes, "is_causal") != 0;
    c->scale = json_number_value(json_object_get(attributes, "scale"));
    c->softcap = json_number_value(json_object_get(attributes, "softcap"));
    c->left = window_side(attributes, "left_window_size");
    c->right = window_side(attributes, "right_window_size");
    c->windowed = c->left >= 0 || c->right >= 0;
    bool nonpad = find(&view, folder, inputs, "nonpad_kv_seqlen");
    load_onnx_causality(c, nonpad ? &view : NULL, c->past);
    if (find(&view, folder, inputs, "attn_mask"))
        set_mask(c, &view, true);
    find(&view, folder, expected, "Y");
    c->output = heads_first(&view, c->heads, &tokens, &width);
    c->present_key = floats(folder, expected, "present_key");
    c->present_value = floats(folder, expected, "present_value");
    size_t mode = number(attributes, "qk_matmul_output_mode"); /* 0 to 2: a stage; 3: weights */
    float *map = floats(folder, expected, "qk_matmul_output");
    *(mode == 3 ? &c->weights : &c->scores) = map;
    c->stage = (int)(mode == 3 ? 0 : mode);
    c->columns = c->keys;
}

/* ---- All folders ---- */

/* The next case of the set, of that entry. */
static struct golden_case *add_case(struct golden_set *set, const struct folder *folder,
                                    json_t *entry)
{
    struct golden_case *c = &set->cases[set->count];
    json_t *own = json_object_get(json_object_get(entry, "tolerance"), "abs");
    const double tolerance =
        json_number_value(json_object_get(json_object_get(folder->cases, "tolerance"), "abs"));
    if (set->count++ == MAX_CASES)
        die("too many cases", folder->name);
    *c = (struct golden_case){.source = SIZE_MAX};
    c->tolerance = own ? json_number_value(own) : tolerance > 0 ? tolerance : 1e-5;
    snprintf(c->name, sizeof c->name, "%s/%s", folder->name,
             json_string_value(json_object_get(entry, "id")));
    return c;
}

static void load_folder(struct golden_set *set, const char *directory, const char *name)
{
    struct folder folder;
    size_t i;
    json_t *entry;
    open_folder(&folder, directory, name);
    json_array_foreach(json_object_get(folder.cases, "cases"), i, entry) {
        struct golden_case *c = add_case(set, &folder, entry);
        if (strncmp(name, "onnx", 4) == 0)
            load_onnx(c, &folder, entry);
        else if (strncmp(name, "torch", 5) == 0)
            load_torch(c, &folder, entry);
        else
            load_hf(c, &folder, entry);
        json_t *inputs = json_object_get(entry, "inputs");
        if (json_object_get(inputs, "global_attention_mask") != NULL) {
            c = add_case(set, &folder, entry);
            snprintf(c->stack, sizeof c->stack, "global");
            load_hf(c, &folder, entry);
        }
    }
    close_folder(&folder);
}

/* Whether the folder holds cases; patterns/ holds a checkpoint alone. */
static bool has_cases(const char *directory, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/cases.json", directory, name);
    return access(path, F_OK) == 0;
}

static void load_directory(struct golden_set *set, const char *directory)
{
    struct dirent **names;
    int n = scandir(directory, &names, NULL, alphasort);
    if (n < 0)
        die("cannot list", directory);
    for (int i = 0; i < n; i++) {
        if (has_cases(directory, names[i]->d_name))
            load_folder(set, directory, names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

void golden_load(struct golden_set *set)
{
    *set = (struct golden_set){.cases = take(MAX_CASES, sizeof *set->cases)};
    load_directory(set, "tests/golden");
    load_directory(set, "tests/reference");
}

void golden_free(struct golden_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        struct golden_case *c = &set->cases[i];
        void *owned[] = {c->hidden_states, c->key_states,  c->value_states,  c->query,
                         c->key,           c->value,       c->padding,       c->mask,
                         c->bias,          c->positions,   c->offsets,       c->output,
                         c->weights,       c->average,     c->scores,        c->key_cache,
                         c->value_cache,   c->present_key, c->present_value, c->decode_output,
                         c->compare_rows};
        for (size_t j = 0; j < sizeof owned / sizeof owned[0]; j++)
            free(owned[j]);
    }
    free(set->cases);
}

uint8_t *golden_rows_per_head(const struct golden_case *c)
{
    if (c->compare_rows == NULL)
        return NULL;
    uint8_t *rows = take(c->batch * c->heads * c->queries, 1);
    for (size_t b = 0; b < c->batch; b++)
        for (size_t h = 0; h < c->heads; h++)
            memcpy(rows + (b * c->heads + h) * c->queries, c->compare_rows + b * c->queries,
                   c->queries);
    return rows;
}

double golden_error(size_t *worst, const float *got, const float *want, size_t rows, size_t width,
                    const uint8_t *rows_wanted)
{
    double largest = 0;
    *worst = 0;
    for (size_t i = 0; i < rows * width; i++) {
        if (rows_wanted != NULL && !rows_wanted[i / width])
            continue;
        if (got[i] == want[i]) /* equal infinities, too */
            continue;
        double error = fabs((double)got[i] - (double)want[i]) / fmax(1, fabs((double)want[i]));
        if (!(error <= largest)) {
            largest = isnan(error) ? INFINITY : error;
            *worst = i;
        }
    }
    return largest;
}
