/* quantization.c: quantization_config -> what it says; the tensors of a quantised weight -> where
 * its codes, scales and zero points lie.  Sizes and bits follow from the tensors' shapes. */
#include "families/quantization.h"

#include <stdio.h>
#include <string.h>

#include "attn_json.h"
#include "basics/mem.h"
#include "basics/status.h"
#include "files/quantized.h"

/* ---- The configuration ----------------------------------------------------------------------- */

static const char *const methods[] = {
    [ATTN_QUANT_OTHER] = "",
    [ATTN_QUANT_FP8] = "fp8",
    [ATTN_QUANT_COMPRESSED] = "compressed-tensors",
    [ATTN_QUANT_GPTQ] = "gptq",
    [ATTN_QUANT_AWQ] = "awq",
    [ATTN_QUANT_BITSANDBYTES] = "bitsandbytes",
    [ATTN_QUANT_MODELOPT] = "modelopt",
    [ATTN_QUANT_MLX] = "mlx",
};

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Checks that the number of that key, where there is one, is among those. */
static bool is_one_of(const json_t *object, const char *key, const json_int_t *allowed,
                      struct attn_error *error)
{
    const json_t *value = json_object_get(object, key);
    if (value == NULL || json_is_null(value))
        return true;
    for (; json_is_integer(value) && *allowed != 0; allowed++)
        if (json_integer_value(value) == *allowed)
            return true;
    attn_fail(error, ATTN_UNSUPPORTED, key,
              "quantization_config.%s is %" JSON_INTEGER_FORMAT ", which is not read", key,
              json_integer_value(value));
    return false;
}

static enum attn_status read_block(struct attn_quantization *out, const json_t *block,
                                   struct attn_error *error)
{
    if (block == NULL || json_is_null(block))
        return ATTN_OK;
    for (size_t i = 0; i < 2; i++) {
        const json_int_t size = json_integer_value(json_array_get(block, i));
        if (json_array_size(block) != 2 || size < 1 || size > ATTN_MAX_HIDDEN_SIZE)
            return attn_fail(error, ATTN_MALFORMED, "weight_block_size",
                             "quantization_config.weight_block_size must be two integers from 1 "
                             "to %d",
                             ATTN_MAX_HIDDEN_SIZE);
        out->block[i] = (size_t)size;
    }
    return ATTN_OK;
}

enum attn_status attn_quantization_read(struct attn_quantization *out, const char *key,
                                        const json_t *value, struct attn_error *error)
{
    static const json_int_t bits[] = {2, 3, 4, 8, 0};
    const bool mlx = strcmp(key, "quantization") == 0;
    const json_int_t group = json_integer_value(json_object_get(value, "group_size"));
    if (json_is_null(value))
        return ATTN_OK;
    if (!json_is_object(value))
        return attn_fail(error, ATTN_MALFORMED, key, "%s must be an object", key);
    const char *method = mlx ? "mlx" : text_of(value, "quant_method");
    if (out->method == ATTN_QUANT_MLX) /* its quantization_config repeats `quantization` */
        return ATTN_OK;
    snprintf(out->name, sizeof out->name, "%s", method);
    snprintf(out->format, sizeof out->format, "%s", text_of(value, "format"));
    out->method = ATTN_QUANT_OTHER;
    for (size_t i = 1; i < sizeof methods / sizeof methods[0]; i++)
        if (i != ATTN_QUANT_OTHER && strcmp(methods[i], method) == 0)
            out->method = (enum attn_quant_method)i;
    out->adds_one = strcmp(text_of(value, "checkpoint_format"), "gptq_v2") != 0;
    if (out->method == ATTN_QUANT_GPTQ || out->method == ATTN_QUANT_AWQ) {
        if (!is_one_of(value, "bits", bits, error))
            return ATTN_UNSUPPORTED;
        if (json_object_get(value, "group_size") != NULL && group != -1 && group < 1)
            return attn_fail(error, ATTN_OUT_OF_RANGE, "group_size",
                             "quantization_config.group_size is %" JSON_INTEGER_FORMAT
                             ", wanted is -1 or a size",
                             group);
    }
    const char *version = text_of(value, "version");
    if (out->method == ATTN_QUANT_AWQ && version[0] != '\0' && strcmp(version, "gemm") != 0)
        return attn_fail(error, ATTN_UNSUPPORTED, "version",
                         "quantization_config.version is \"%.64s\", read is gemm", version);
    const json_t *groups = json_object_get(value, "config_groups");
    const char *name;
    json_t *one;
    out->group = group > 0 ? (size_t)group : 0;
    const json_int_t own = json_integer_value(json_object_get(value, "bits"));
    out->bits = own >= 2 && own <= 8 ? (unsigned)own : 0;
    bool several = false;
    json_object_foreach((json_t *)groups, name, one) {
        const json_t *weights = json_object_get(one, "weights");
        const json_int_t size = json_integer_value(json_object_get(weights, "group_size"));
        out->asymmetric = out->asymmetric || json_is_false(json_object_get(weights, "symmetric"));
        const json_int_t width = json_integer_value(json_object_get(weights, "num_bits"));
        out->group = size > 0 ? (size_t)size : out->group;
        several = several || (out->bits != 0 && (json_int_t)out->bits != width);
        out->bits = width >= 2 && width <= 8 ? (unsigned)width : 0;
    }
    out->bits = several ? 0 : out->bits;
    return read_block(out, json_object_get(value, "weight_block_size"), error);
}

/* ---- The tensors of a weight ----------------------------------------------------------------- */

/* A weight that is being described.  After a fault `status` stays. */
struct finder {
    struct attn_checkpoint *checkpoint;
    const struct attn_quantization *says;
    char base[ATTN_SAFETENSORS_MAX_NAME]; /* the name without ".weight" */
    struct attn_quantized *w;
    struct attn_error *error;
    enum attn_status status;
};

#define FAIL(f, code, param, ...) \
    ((f)->status =                \
         (f)->status != ATTN_OK ? (f)->status : attn_fail((f)->error, code, param, __VA_ARGS__))

#define FLOATS "F32 F16 BF16"

static bool find(struct finder *f, struct attn_stored *out, const char *end)
{
    char name[ATTN_SAFETENSORS_MAX_NAME];
    struct attn_tensor tensor = {.entry = NULL};
    snprintf(name, sizeof name, "%s%s", f->base, end);
    if (f->status == ATTN_OK)
        f->status = attn_checkpoint_find(&tensor, f->checkpoint, name, f->error);
    if (f->status != ATTN_OK || tensor.entry == NULL || tensor.file == NULL)
        return false;
    *out = (struct attn_stored){tensor.file, tensor.entry};
    return true;
}

static size_t elements(const struct attn_tensor_entry *entry)
{
    size_t count = 1;
    for (size_t i = 0; i < entry->ndim; i++)
        count *= entry->shape[i];
    return count;
}

/* Checks that the tensor is of one of these dtypes and [rows][columns]; a single number for 1 and 1
 * may have any rank. */
static void check(struct finder *f, const struct attn_stored *stored, const char *dtypes,
                  size_t rows, size_t columns)
{
    const struct attn_tensor_entry *e = stored->entry;
    const char *at = f->status == ATTN_OK ? strstr(dtypes, e->dtype->name) : dtypes;
    const size_t length = f->status == ATTN_OK ? strlen(e->dtype->name) : 0;
    if (at == NULL || (length > 0 && at[length] != ' ' && at[length] != '\0'))
        FAIL(f, ATTN_UNSUPPORTED, e->name, "tensor '%.96s' is %s, wanted is %s", e->name,
             e->dtype->name, dtypes);
    if (f->status != ATTN_OK || (rows == 1 && columns == 1 && elements(e) == 1))
        return;
    const bool vector = columns == 1 && e->ndim == 1 && e->shape[0] == rows;
    if (!vector && (e->ndim != 2 || e->shape[0] != rows || e->shape[1] != columns))
        FAIL(f, ATTN_SHAPE_MISMATCH, e->name,
             e->ndim == 2
                 ? "tensor '%.96s' is [%zu, %zu], wanted is [%zu, %zu]"
                 : "tensor '%.96s' has %zu numbers in %zu dimensions, wanted is [%zu, %zu]",
             e->name, e->ndim == 2 ? e->shape[0] : elements(e),
             e->ndim == 2 ? e->shape[1] : e->ndim, rows, columns);
}

/* Finds a tensor that must be there. */
static void need(struct finder *f, struct attn_stored *out, const char *end, const char *dtypes,
                 size_t rows, size_t columns)
{
    if (find(f, out, end))
        check(f, out, dtypes, rows, columns);
    else
        FAIL(f, ATTN_NOT_FOUND, end,
             "tensor '%.96s%s' is missing, which the quantised weight needs", f->base, end);
}

/* The one number of a tensor. */
static float number(struct finder *f, const char *end)
{
    struct attn_stored stored;
    float out = 0;
    need(f, &stored, end, FLOATS, 1, 1);
    if (f->status == ATTN_OK)
        f->status = attn_safetensors_read_f32(&out, stored.file, stored.entry, 0, 1, f->error);
    return out;
}

static void set_values(struct attn_quantized *w, float (*value)(uint8_t))
{
    for (unsigned code = 0; code < 256; code++)
        w->values[code] = value((uint8_t)code);
}

static float signed_byte(uint8_t code) { return (float)(int8_t)code; }
static float unsigned_code(uint8_t code) { return (float)code; }

/* Groups of inputs, of the size that the configuration says or that their number asks for; all but
 * the last are whole. */
static void set_groups(struct finder *f, size_t groups)
{
    struct attn_quantized *w = f->w;
    w->groups = groups;
    w->group = groups > 0 ? attn_ceil_div(w->in, groups) : 0;
    if (f->says->group > 0 && attn_ceil_div(w->in, f->says->group) == groups)
        w->group = f->says->group;
    if (groups == 0 || attn_ceil_div(w->in, w->group) != groups)
        FAIL(f, ATTN_SHAPE_MISMATCH, f->base, "'%.96s': %zu inputs cannot have %zu groups", f->base,
             w->in, groups);
}

/* The width of the second dimension, 0 where there is none. */
static size_t second(const struct attn_stored *stored)
{
    return stored->entry->ndim == 2 ? stored->entry->shape[1] : 0;
}

/* FP8 codes with one scale, one for each row, or one for each block. */
static void describe_fp8(struct finder *f)
{
    struct attn_quantized *w = f->w;
    const size_t *block = f->says->block;
    const bool inverse = find(f, &w->scales, ".weight_scale_inv");
    check(f, &w->codes, "F8_E4M3", w->out, w->in);
    set_values(w, attn_e4m3_to_float);
    if (block[0] != 0) {
        need(f, &w->scales,
             inverse || f->says->method == ATTN_QUANT_FP8 ? ".weight_scale_inv" : ".weight_scale",
             FLOATS " F8_E8M0", attn_ceil_div(w->out, block[0]), attn_ceil_div(w->in, block[1]));
        w->group = block[1];
        w->groups = attn_ceil_div(w->in, block[1]);
        w->block_rows = block[0];
        return;
    }
    set_groups(f, 1);
    need(f, &w->scales, ".weight_scale", FLOATS,
         find(f, &w->scales, ".weight_scale") && elements(w->scales.entry) == 1 ? 1 : w->out, 1);
    w->block_rows = f->status == ATTN_OK && elements(w->scales.entry) == 1 ? 0 : 1;
}

/* int8 with a scale, and perhaps a zero point, for each row or group. */
static void describe_int8(struct finder *f)
{
    struct attn_quantized *w = f->w;
    check(f, &w->codes, "I8", w->out, w->in);
    set_values(w, signed_byte);
    if (f->says->method == ATTN_QUANT_BITSANDBYTES) {
        need(f, &w->scales, ".SCB", "F32", w->out, 1);
        w->scale_divisor = 127;
    } else if (find(f, &w->scales, ".weight_scale")) {
        const bool one = elements(w->scales.entry) == 1;
        set_groups(f, attn_max(second(&w->scales), 1));
        check(f, &w->scales, FLOATS, one ? 1 : w->out, one ? 1 : w->groups);
        w->block_rows = one ? 0 : 1;
    } else
        need(f, &w->scales, ".weight_scale", FLOATS, w->out, 1);
    if (find(f, &w->zeros, ".weight_zero_point")) {
        check(f, &w->zeros, "I8", w->out, w->groups);
        w->zero_order = ATTN_ZERO_NUMBER;
    }
}

/* NVFP4: codes of four bits, scales in E4M3 for 16 inputs, and one scale of all. */
static void describe_nvfp4(struct finder *f)
{
    struct attn_quantized *w = f->w;
    const bool divides = f->says->method == ATTN_QUANT_COMPRESSED;
    check(f, &w->codes, "U8", w->out, w->in / 2);
    set_values(w, attn_e2m1_to_float);
    w->bits = 4;
    if (w->in % 16 != 0)
        FAIL(f, ATTN_SHAPE_MISMATCH, w->codes.entry->name,
             "tensor '%.96s': %zu inputs are no whole groups of 16", w->codes.entry->name, w->in);
    w->group = 16;
    w->groups = w->in / 16;
    need(f, &w->scales, ".weight_scale", "F8_E4M3", w->out, w->groups);
    *(divides ? &w->scale_divisor : &w->scale_factor) =
        number(f, divides ? ".weight_global_scale" : ".weight_scale_2");
}

/* Sets the bits of a code: those that the configuration says where `words` words of 32 bits hold
 * `count` such codes; else, since modules may differ, those that they hold. */
static void set_bits(struct finder *f, size_t words, size_t count)
{
    static const unsigned widths[] = {4, 8, 2, 3, 6};
    const struct attn_tensor_entry *codes = f->w->codes.entry;
    const unsigned said = f->says->bits;
    f->w->bits = said;
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        if (words != attn_ceil_div(count * f->w->bits, 32) &&
            (said == 0 || f->says->method == ATTN_QUANT_MLX))
            f->w->bits = widths[i];
    if (f->w->bits == 0 || words != attn_ceil_div(count * f->w->bits, 32))
        FAIL(f, ATTN_SHAPE_MISMATCH, codes->name,
             "tensor '%.96s': %zu words a row do not hold %zu codes of %u bits", codes->name, words,
             count, f->w->bits);
}

/* Reads the group of each input. */
static void read_index(struct finder *f, const char *end)
{
    struct attn_quantized *w = f->w;
    const size_t bytes = w->in * sizeof(int32_t);
    if (!find(f, &w->index, end))
        return;
    check(f, &w->index, "I32", w->in, 1);
    int32_t *index = attn_alloc(w->in, sizeof *index);
    w->group_of = attn_alloc(w->in, sizeof *w->group_of);
    if (f->status == ATTN_OK && (index == NULL || w->group_of == NULL))
        f->status = attn_fail_memory(f->error, bytes + w->in * sizeof *w->group_of);
    const void *read = index;
    if (f->status == ATTN_OK)
        f->status = attn_safetensors_read_bytes(&read, w->index.file, w->index.entry, 0, bytes,
                                                index, f->error);
    for (size_t c = 0; c < w->in && f->status == ATTN_OK; c++) {
        int32_t group;
        memcpy(&group, (const char *)read + c * sizeof group, sizeof group);
        if (group < 0 || (size_t)group >= w->groups)
            FAIL(f, ATTN_OUT_OF_RANGE, w->index.entry->name, "tensor '%.96s' names group %d of %zu",
                 w->index.entry->name, group, w->groups);
        w->group_of[c] = (size_t)group;
    }
    attn_free(index);
}

static void describe_packed(struct finder *f)
{
    struct attn_quantized *w = f->w;
    struct attn_stored shape;
    int64_t said[2] = {0, 0};
    const void *read = said;
    need(f, &shape, ".weight_shape", "I64", 2, 1);
    if (f->status == ATTN_OK)
        f->status = attn_safetensors_read_bytes(&read, shape.file, shape.entry, 0, sizeof said,
                                                said, f->error);
    if (f->status == ATTN_OK)
        memcpy(said, read, sizeof said);
    if (said[0] != (int64_t)w->out || said[1] != (int64_t)w->in)
        FAIL(f, ATTN_SHAPE_MISMATCH, shape.entry->name,
             "tensor '%.96s' says [%lld, %lld], the configuration asks for [%zu, %zu]",
             shape.entry->name, (long long)said[0], (long long)said[1], w->out, w->in);
    set_bits(f, second(&w->codes), w->in);
    check(f, &w->codes, "I32", w->out, attn_ceil_div(w->in * w->bits, 32));
    for (unsigned code = 0; code < 256; code++)
        w->values[code] = (float)code - (float)(1u << w->bits >> 1);
    if (find(f, &w->scales, ".weight_scale"))
        set_groups(f, attn_max(second(&w->scales), 1));
    need(f, &w->scales, ".weight_scale", FLOATS, w->out, w->groups);
    w->block_rows = 1;
    if (find(f, &w->zeros, ".weight_zero_point")) {
        check(f, &w->zeros, "I32", attn_ceil_div(w->out * w->bits, 32), w->groups);
        set_values(w, unsigned_code); /* less zero points of the same offset */
        w->zero_order = ATTN_ZERO_BY_COLUMN;
    } else if (f->says->asymmetric)
        need(f, &w->zeros, ".weight_zero_point", "I32", 1, 1);
    read_index(f, ".weight_g_idx");
}

/* GPTQ and AWQ: words of codes by input, or by output. */
static void describe_words(struct finder *f)
{
    struct attn_quantized *w = f->w;
    const bool awq = f->says->method == ATTN_QUANT_AWQ;
    const size_t *shape = w->codes.entry->shape;
    w->code_order = awq ? ATTN_CODES_BY_OUTPUT : ATTN_CODES_BY_INPUT;
    w->zero_order = awq ? ATTN_ZERO_AWQ : ATTN_ZERO_BY_GROUP;
    w->zero_more = !awq && f->says->adds_one;
    set_values(w, unsigned_code);
    if (w->codes.entry->ndim == 2)
        set_bits(f, shape[awq ? 1 : 0], awq ? w->out : w->in);
    if (w->bits == 0 || 32 % w->bits != 0 || (awq && w->bits != 4))
        FAIL(f, ATTN_UNSUPPORTED, w->codes.entry->name,
             "tensor '%.96s' has codes of %u bits, "
             "which are not read",
             w->codes.entry->name, w->bits);
    const size_t each = f->status == ATTN_OK ? 32 / w->bits : 1;
    if (w->out % each != 0)
        FAIL(f, ATTN_UNSUPPORTED, w->codes.entry->name,
             "tensor '%.96s': %zu outputs are no whole words of %zu codes", w->codes.entry->name,
             w->out, each);
    if (awq)
        check(f, &w->codes, "I32", w->in, w->out / each);
    else
        check(f, &w->codes, "I32", attn_ceil_div(w->in, each), w->out);
    if (find(f, &w->scales, ".scales") && w->scales.entry->ndim == 2)
        set_groups(f, w->scales.entry->shape[0]);
    need(f, &w->scales, ".scales", FLOATS, w->groups, w->out);
    w->scales_by_group = true;
    need(f, &w->zeros, ".qzeros", "I32", w->groups, w->out / each);
    if (!awq)
        read_index(f, ".g_idx");
}

static void describe_mlx(struct finder *f)
{
    struct attn_quantized *w = f->w;
    set_bits(f, second(&w->codes), w->in);
    check(f, &w->codes, "U32", w->out, attn_ceil_div(w->in * w->bits, 32));
    set_values(w, unsigned_code);
    if (find(f, &w->scales, ".scales"))
        set_groups(f, second(&w->scales));
    need(f, &w->scales, ".scales", FLOATS, w->out, w->groups);
    need(f, &w->biases, ".biases", FLOATS, w->out, w->groups);
    w->block_rows = 1;
}

/* ---- bitsandbytes in four bits ---- */

/* Reads the 16 or 256 numbers of a tensor into a table of values. */
static void read_table(struct finder *f, float *values, const char *end, size_t count)
{
    struct attn_stored stored;
    need(f, &stored, end, "F32", count, 1);
    if (f->status == ATTN_OK)
        f->status =
            attn_safetensors_read_f32(values, stored.file, stored.entry, 0, count, f->error);
}

/* The JSON object in the bytes of weight.quant_state.bitsandbytes__nf4 or __fp4; *stored is that
 * tensor. */
static json_t *read_state(struct finder *f, struct attn_stored *stored)
{
    char text[1024];
    const void *read = text;
    if (!find(f, stored, ".weight.quant_state.bitsandbytes__nf4") &&
        !find(f, stored, ".weight.quant_state.bitsandbytes__fp4")) {
        FAIL(f, ATTN_NOT_FOUND, f->base, "tensor '%.96s.weight.quant_state.*' is missing", f->base);
        return NULL;
    }
    const size_t size = stored->entry->end - stored->entry->begin;
    if (size <= sizeof text && f->status == ATTN_OK)
        f->status = attn_safetensors_read_bytes(&read, stored->file, stored->entry, 0, size, text,
                                                f->error);
    json_t *state = NULL;
    json_error_t why;
    if (size <= sizeof text && f->status == ATTN_OK &&
        attn_json_load(&state, read, size, JSON_REJECT_DUPLICATES, &why) == ATTN_NO_MEMORY)
        f->status = attn_fail_memory(f->error, size);
    if (!json_is_object(state))
        FAIL(f, ATTN_MALFORMED, stored->entry->name, "tensor '%.96s' is no JSON object",
             stored->entry->name);
    return state;
}

static size_t state_size(struct finder *f, const json_t *state, const char *key, const char *name)
{
    const json_int_t size = json_integer_value(json_object_get(state, key));
    if (size < 1 || size > (json_int_t)1 << 30)
        FAIL(f, ATTN_OUT_OF_RANGE, name, "%s is %" JSON_INTEGER_FORMAT " in '%.96s'", key, size,
             name);
    return size < 1 ? 1 : (size_t)size;
}

/* Codes of four bits whose scales are for so many elements, across the ends of rows; with nested
 * quantisation the scales are codes themselves. */
static void describe_nf4(struct finder *f)
{
    struct attn_quantized *w = f->w;
    struct attn_stored stored;
    const size_t count = w->out * w->in, bytes = w->codes.entry->end - w->codes.entry->begin;
    json_t *state = read_state(f, &stored);
    if (f->status != ATTN_OK) {
        json_decref(state);
        return;
    }
    const char *name = stored.entry->name;
    const json_t *shape = json_object_get(state, "shape");
    const json_int_t rows = json_integer_value(json_array_get(shape, 0));
    const json_int_t columns = json_integer_value(json_array_get(shape, 1));
    w->group = state_size(f, state, "blocksize", name);
    w->groups = attn_ceil_div(w->in, w->group) + 1;
    w->bits = 4;
    w->code_order = ATTN_CODES_ALL;
    w->scales_by_element = true;
    if (rows != (json_int_t)w->out || columns != (json_int_t)w->in || bytes != (count + 1) / 2)
        FAIL(f, ATTN_SHAPE_MISMATCH, w->codes.entry->name,
             "tensor '%.96s' has %zu bytes and the shape [%" JSON_INTEGER_FORMAT
             ", %" JSON_INTEGER_FORMAT
             "] in its quant_state, the configuration asks for [%zu, %zu]",
             w->codes.entry->name, bytes, rows, columns, w->out, w->in);
    read_table(f, w->values, ".weight.quant_map", 16);
    const size_t scales = attn_ceil_div(count, w->group);
    if (find(f, &w->nested, ".weight.nested_absmax")) {
        w->nested_group = state_size(f, state, "nested_blocksize", name);
        const json_t *offset = json_object_get(state, "nested_offset");
        if (!json_is_number(offset))
            FAIL(f, ATTN_MALFORMED, name, "'%.96s' has no nested_offset, which nested scales need",
                 name);
        w->nested_offset = (float)json_number_value(offset);
        check(f, &w->nested, "F32", attn_ceil_div(scales, w->nested_group), 1);
        read_table(f, w->nested_values, ".weight.nested_quant_map", 256);
    }
    need(f, &w->scales, ".weight.absmax", w->nested.entry != NULL ? "U8" : "F32", scales, 1);
    json_decref(state);
}

/* ---- Finding --------------------------------------------------------------------------------- */

static const char *const formats[] = {"",
                                      "dense",
                                      "float-quantized",
                                      "int-quantized",
                                      "naive-quantized",
                                      "pack-quantized",
                                      "nvfp4-pack-quantized",
                                      "mixed-precision"};

/* Describes the weight whose codes have been found. */
static void describe(struct finder *f)
{
    const struct attn_quantization *says = f->says;
    const char *dtype = f->w->codes.entry->dtype->name;
    size_t known = 0;
    while (known < sizeof formats / sizeof formats[0] && strcmp(formats[known], says->format) != 0)
        known++;
    if (says->method == ATTN_QUANT_NONE)
        FAIL(f, ATTN_UNSUPPORTED, f->w->codes.entry->name,
             "tensor '%.96s' is %s, and the configuration has no quantization_config",
             f->w->codes.entry->name, dtype);
    else if (says->method == ATTN_QUANT_OTHER)
        FAIL(
            f, ATTN_UNSUPPORTED, "quantization_config",
            "quantization_config.quant_method is \"%.31s\", which is not read: convert the weights "
            "to bf16",
            says->name);
    else if (says->method == ATTN_QUANT_COMPRESSED && known == sizeof formats / sizeof formats[0])
        FAIL(f, ATTN_UNSUPPORTED, "format",
             "quantization_config.format is \"%.31s\", which is not read", says->format);
    else if (says->method == ATTN_QUANT_GPTQ || says->method == ATTN_QUANT_AWQ)
        describe_words(f);
    else if (says->method == ATTN_QUANT_MLX)
        describe_mlx(f);
    else if (strcmp(dtype, "F8_E4M3") == 0)
        describe_fp8(f);
    else if (strcmp(dtype, "I8") == 0)
        describe_int8(f);
    else if (strcmp(dtype, "I32") == 0)
        describe_packed(f);
    else if (says->method == ATTN_QUANT_BITSANDBYTES)
        describe_nf4(f);
    else
        describe_nvfp4(f);
}

enum attn_status attn_quantization_find(struct attn_tensor *out, struct attn_checkpoint *checkpoint,
                                        const struct attn_quantization *quantization,
                                        const char *name, size_t rows, size_t columns,
                                        struct attn_error *error)
{
    static const char end[] = ".weight";
    static const char *const codes[] = {".qweight", ".weight_packed", ".weight"};
    struct finder f = {.checkpoint = checkpoint, .says = quantization, .error = error};
    struct attn_stored found = {.entry = NULL};
    const size_t length = strlen(name);
    out->entry = NULL;
    if (length < sizeof end || strcmp(name + length - (sizeof end - 1), end) != 0)
        return ATTN_OK;
    snprintf(f.base, sizeof f.base, "%.*s", (int)(length - (sizeof end - 1)), name);
    size_t tried = 0;
    while (tried < sizeof codes / sizeof codes[0] && !find(&f, &found, codes[tried]))
        tried++;
    const bool plain = strcmp(codes[attn_min(tried, 2)], end) == 0;
    if (f.status != ATTN_OK || found.entry == NULL ||
        (plain && strstr("F8_E4M3 I8 U8 I32 U32", found.entry->dtype->name) == NULL))
        return f.status;
    const struct attn_quantized *known = attn_checkpoint_quantized(checkpoint, name);
    if (known == NULL) {
        f.w = attn_calloc(1, sizeof *f.w);
        if (f.w == NULL)
            return attn_fail_memory(error, sizeof *f.w);
        *f.w = (struct attn_quantized){.out = rows,
                                       .in = columns,
                                       .codes = found,
                                       .bits = 8,
                                       .group = columns,
                                       .groups = 1,
                                       .block_rows = 1,
                                       .scale_factor = 1,
                                       .scale_divisor = 1};
        describe(&f);
        if (f.status == ATTN_OK)
            f.status = attn_checkpoint_keep(checkpoint, f.w, name, error);
        if (f.status != ATTN_OK) {
            attn_free(f.w->group_of);
            attn_free(f.w);
            return f.status;
        }
        known = f.w;
    }
    *out = (struct attn_tensor){.quantized = known, .entry = &known->entry};
    return ATTN_OK;
}

bool attn_quantization_weight(char *out, size_t size, const char *name)
{
    static const char *const ends[] = {".qweight",
                                       ".qzeros",
                                       ".scales",
                                       ".g_idx",
                                       ".biases",
                                       ".weight_packed",
                                       ".weight_scale",
                                       ".weight_scale_inv",
                                       ".weight_scale_2",
                                       ".weight_global_scale",
                                       ".weight_zero_point",
                                       ".weight_g_idx",
                                       ".weight_shape",
                                       ".input_scale",
                                       ".input_global_scale",
                                       ".SCB",
                                       ".weight_format",
                                       ".weight.absmax",
                                       ".weight.quant_map",
                                       ".weight.nested_absmax",
                                       ".weight.nested_quant_map",
                                       ".weight.quant_state.bitsandbytes__nf4",
                                       ".weight.quant_state.bitsandbytes__fp4",
                                       ".weight"};
    const size_t length = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        const size_t end = strlen(ends[i]);
        if (length > end && strcmp(name + length - end, ends[i]) == 0)
            return (size_t)snprintf(out, size, "%.*s.weight", (int)(length - end), name) < size;
    }
    return false;
}
