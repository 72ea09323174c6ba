/* quantization.c: the tensors of a quantised weight -> where its codes, scales and zero points lie.
 * Sizes and bits follow from the tensors' shapes. */
#include "families/quantization.h"

#include <stdio.h>
#include <string.h>

#include "attn_json.h"
#include "basics/status.h"
#include "basics/text.h"
#include "files/quantized.h"

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

/* The name of a part of the weight: torchao has "._weight_" where others have ".weight_". */
static void name_part(char out[ATTN_SAFETENSORS_MAX_NAME], const struct finder *f, const char *end)
{
    const bool own = f->says->method == ATTN_QUANT_TORCHAO && strncmp(end, ".weight_", 8) == 0;
    snprintf(out, ATTN_SAFETENSORS_MAX_NAME, "%.480s%s%s", f->base, own ? "._" : ".", end + 1);
}

/* Finds a tensor, which is one of the weight's then. */
static bool find(struct finder *f, struct attn_stored *out, const char *end)
{
    char name[ATTN_SAFETENSORS_MAX_NAME];
    struct attn_tensor tensor = {.entry = NULL};
    name_part(name, f, end);
    if (f->status == ATTN_OK)
        f->status = attn_checkpoint_find(&tensor, f->checkpoint, name, f->error);
    if (f->status != ATTN_OK || tensor.entry == NULL || tensor.file == NULL)
        return false;
    *out = (struct attn_stored){tensor.file, tensor.entry};
    size_t part = 0;
    while (f->w != NULL && part < f->w->num_parts && f->w->parts[part] != tensor.entry->name)
        part++;
    if (f->w != NULL && part == f->w->num_parts && part < ATTN_QUANTIZED_PARTS)
        f->w->parts[f->w->num_parts++] = tensor.entry->name;
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
    char name[ATTN_SAFETENSORS_MAX_NAME];
    name_part(name, f, end);
    if (find(f, out, end))
        check(f, out, dtypes, rows, columns);
    else
        FAIL(f, ATTN_NOT_FOUND, end, "tensor '%.128s' is missing, which the quantised weight needs",
             name);
}

/* Reads all `count` numbers of a tensor that must be there. */
static void read_numbers(struct finder *f, float *out, const char *end, const char *dtypes,
                         size_t count)
{
    struct attn_stored stored;
    need(f, &stored, end, dtypes, count, 1);
    if (f->status == ATTN_OK)
        f->status = attn_safetensors_read_f32(out, stored.file, stored.entry, 0, count, f->error);
}

/* Reads the first bytes of a tensor, which is in a file. */
static void read_bytes(struct finder *f, void *out, const struct attn_stored *stored, size_t bytes)
{
    const void *read;
    if (f->status == ATTN_OK)
        f->status = attn_safetensors_read_bytes(&read, stored->file, stored->entry, 0, bytes, out,
                                                f->error);
}

static void set_values(struct attn_quantized *w, float (*value)(uint8_t))
{
    for (unsigned code = 0; code < 256; code++)
        w->values[code] = value((uint8_t)code);
}

static float signed_byte(uint8_t code) { return (float)(int8_t)code; }
static float unsigned_code(uint8_t code) { return (float)code; }

/* Groups of inputs, of the size that the configuration says, the last perhaps not whole; where none
 * that it says has that many, since modules may differ, whole groups. */
static void set_groups(struct finder *f, size_t groups)
{
    const struct attn_quantization *says = f->says;
    struct attn_quantized *w = f->w;
    size_t size = 0;
    for (size_t i = 0; i < says->num_groups; i++)
        if (attn_ceil_div(w->in, says->groups[i]) == groups) {
            if (size != 0 && groups > 1)
                FAIL(f, ATTN_UNSUPPORTED, f->base,
                     "'%.96s': %zu inputs have %zu groups of %zu or of %zu, as the configuration "
                     "says both",
                     f->base, w->in, groups, size, says->groups[i]);
            size = says->groups[i];
        }
    if (size == 0 && groups > 0 && w->in % groups == 0)
        size = w->in / groups;
    if (size == 0)
        FAIL(f, ATTN_SHAPE_MISMATCH, f->base, "'%.96s': %zu inputs cannot have %zu groups", f->base,
             w->in, groups);
    w->groups = groups;
    w->group = attn_max(size, 1);
}

/* The width of the second dimension, 0 where there is none. */
static size_t second(const struct attn_stored *stored)
{
    return stored->entry->ndim == 2 ? stored->entry->shape[1] : 0;
}

/* FP8 codes with one scale, one for each row, or one for each block.  Hugging Face names it
 * `weight_scale_inv`, which multiplies the codes as `weight_scale` does.  Where a weight has both
 * names, `weight_scale` is no part of it, and is refused.  Where the configuration does not say the
 * size of blocks, a `weight_scale` has none. */
static void describe_fp8(struct finder *f)
{
    struct attn_quantized *w = f->w;
    const size_t *block = f->says->block;
    const bool usual = f->says->usual_block;
    const bool inverse = find(f, &w->scales, ".weight_scale_inv") ||
                         (block[0] != 0 && !usual && f->says->method == ATTN_QUANT_FP8);
    const bool blocks = block[0] != 0 && (!usual || (inverse && elements(w->scales.entry) != 1));
    const char *scale = inverse ? ".weight_scale_inv" : ".weight_scale";
    check(f, &w->codes, "F8_E4M3", w->out, w->in);
    set_values(w, attn_e4m3_to_float);
    if (blocks) {
        need(f, &w->scales, scale, FLOATS " F8_E8M0", attn_ceil_div(w->out, block[0]),
             attn_ceil_div(w->in, block[1]));
        w->group = block[1];
        w->groups = attn_ceil_div(w->in, block[1]);
        w->block_rows = block[0];
        return;
    }
    set_groups(f, 1);
    const bool one = find(f, &w->scales, scale) && elements(w->scales.entry) == 1;
    need(f, &w->scales, scale, FLOATS, one ? 1 : w->out, 1);
    w->block_rows = one ? 0 : 1;
}

/* Reads the group of each input. */
static void read_index(struct finder *f, const char *end)
{
    struct attn_quantized *w = f->w;
    const size_t bytes = w->in * sizeof(int32_t);
    if (f->says->ordered || find(f, &w->index, end))
        need(f, &w->index, end, "I32", w->in, 1);
    if (f->status != ATTN_OK || w->index.entry == NULL)
        return;
    int32_t *index = attn_alloc(w->in, sizeof *index);
    w->group_of = attn_alloc(w->in, sizeof *w->group_of);
    if (index == NULL || w->group_of == NULL)
        f->status = attn_fail_memory(f->error, bytes + w->in * sizeof *w->group_of);
    read_bytes(f, index, &w->index, bytes);
    bool in_order = true;
    for (size_t c = 0; c < w->in && f->status == ATTN_OK; c++) {
        const int32_t group = index[c];
        if (group < 0 || (size_t)group >= w->groups)
            FAIL(f, ATTN_OUT_OF_RANGE, w->index.entry->name, "tensor '%.96s' names group %d of %zu",
                 w->index.entry->name, group, w->groups);
        w->group_of[c] = (size_t)group;
        in_order = in_order && w->group_of[c] == c / w->group;
    }
    attn_free(index);
    if (in_order) { /* as without an index */
        attn_free(w->group_of);
        w->group_of = NULL;
    }
}

/* int8 of bitsandbytes; other orders than by rows are those of its kernels. */
static void describe_int8_rows(struct finder *f)
{
    struct attn_quantized *w = f->w;
    struct attn_stored order;
    uint8_t form = 0;
    need(f, &w->scales, ".SCB", "F32", w->out, 1);
    w->scale_divisor = 127;
    if (!find(f, &order, ".weight_format"))
        return;
    check(f, &order, "U8", 1, 1);
    read_bytes(f, &form, &order, 1);
    if (form != 0)
        FAIL(f, ATTN_UNSUPPORTED, order.entry->name,
             "tensor '%.96s' is %u, read is 0: save the model again from the processor",
             order.entry->name, form);
}

/* int8 with a scale, and perhaps a zero point, for each row or group, or for all. */
static void describe_int8(struct finder *f)
{
    struct attn_quantized *w = f->w;
    check(f, &w->codes, "I8", w->out, w->in);
    set_values(w, signed_byte);
    if (f->says->method == ATTN_QUANT_BITSANDBYTES) {
        describe_int8_rows(f);
        return;
    }
    const bool one = find(f, &w->scales, ".weight_scale") && elements(w->scales.entry) == 1;
    if (w->scales.entry != NULL)
        set_groups(f, attn_max(second(&w->scales), 1));
    w->block_rows = one ? 0 : 1;
    need(f, &w->scales, ".weight_scale", FLOATS, one ? 1 : w->out, w->groups);
    if (f->says->asymmetric || find(f, &w->zeros, ".weight_zero_point")) {
        need(f, &w->zeros, ".weight_zero_point", "I8", one ? 1 : w->out, w->groups);
        w->zero_order = ATTN_ZERO_NUMBER;
    }
    read_index(f, ".weight_g_idx");
}

static float signed_half_byte(uint8_t code) { return (float)((code & 15) ^ 8) - 8; }

/* Int4Tensor of torchao: codes of four bits, the lower half of a byte first; a zero point is the
 * number that code 0 stands for. */
static void describe_int4(struct finder *f)
{
    struct attn_quantized *w = f->w;
    w->bits = 4;
    set_values(w, signed_half_byte);
    check(f, &w->codes, "I8 U8", w->out, w->in / 2);
    if (find(f, &w->scales, ".weight_scale") && w->scales.entry->ndim == 2)
        set_groups(f, w->scales.entry->shape[0]);
    need(f, &w->scales, ".weight_scale", FLOATS, w->groups, w->out);
    need(f, &w->biases, ".weight_zero_point", FLOATS, w->groups, w->out);
    w->scales_by_group = true;
}

/* FP4 of compressed-tensors and modelopt: codes of four bits.  NVFP4 has scales in E4M3 for 16
 * inputs, and one scale of all; MXFP4 powers of two for 32. */
static void describe_fp4(struct finder *f)
{
    struct attn_quantized *w = f->w;
    const bool mx = strcmp(f->says->format, "mxfp4-pack-quantized") == 0;
    const bool divides = f->says->method == ATTN_QUANT_COMPRESSED;
    check(f, &w->codes, "U8", w->out, w->in / 2);
    set_values(w, attn_e2m1_to_float);
    w->bits = 4;
    w->group = mx ? 32 : 16;
    w->groups = w->in / w->group;
    if (w->in % w->group != 0)
        FAIL(f, ATTN_SHAPE_MISMATCH, w->codes.entry->name,
             "tensor '%.96s': %zu inputs are no whole groups of %zu", w->codes.entry->name, w->in,
             w->group);
    need(f, &w->scales, ".weight_scale", mx ? "U8 F8_E8M0" : "F8_E4M3", w->out, w->groups);
    if (!mx)
        read_numbers(f, divides ? &w->scale_divisor : &w->scale_factor,
                     divides ? ".weight_global_scale" : ".weight_scale_2", FLOATS, 1);
}

/* Sets the bits of a code: those that the configuration says where `words` words of 32 bits hold
 * `count` such codes; else, since modules may differ, those that they hold. */
static void set_bits(struct finder *f, size_t words, size_t count)
{
    static const unsigned widths[] = {4, 8, 2, 3, 6};
    const struct attn_tensor_entry *codes = f->w->codes.entry;
    const unsigned said = f->says->bits;
    f->w->bits = said;
    for (size_t i = 0; i < ATTN_COUNT(widths); i++)
        if (words != attn_ceil_div(count * f->w->bits, 32) &&
            (said == 0 || f->says->method == ATTN_QUANT_MLX))
            f->w->bits = widths[i];
    if (f->w->bits == 0 || words != attn_ceil_div(count * f->w->bits, 32))
        FAIL(f, ATTN_SHAPE_MISMATCH, codes->name,
             "tensor '%.96s': %zu words a row do not hold %zu codes of %u bits", codes->name, words,
             count, f->w->bits);
}

static void describe_packed(struct finder *f)
{
    struct attn_quantized *w = f->w;
    struct attn_stored shape;
    int64_t said[2] = {0, 0};
    need(f, &shape, ".weight_shape", "I64", 2, 1);
    read_bytes(f, said, &shape, sizeof said);
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
             "tensor '%.96s' has codes of %u bits, which are not read", w->codes.entry->name,
             w->bits);
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

/* Finds the tensor of the quantisation's state, which says that bytes of codes may stand where the
 * dtype is one of floats: bnb_4bit_quant_storage. */
static bool find_state(struct finder *f, struct attn_stored *stored)
{
    return f->says->method == ATTN_QUANT_BITSANDBYTES &&
           (find(f, stored, ".weight.quant_state.bitsandbytes__nf4") ||
            find(f, stored, ".weight.quant_state.bitsandbytes__fp4"));
}

/* The JSON object in the bytes of that tensor, *stored. */
static json_t *read_state(struct finder *f, struct attn_stored *stored)
{
    char text[1024];
    if (!find_state(f, stored)) {
        FAIL(f, ATTN_NOT_FOUND, f->base, "tensor '%.96s.weight.quant_state.*' is missing", f->base);
        return NULL;
    }
    const size_t size = stored->entry->end - stored->entry->begin;
    json_t *state = NULL;
    json_error_t why;
    if (size <= sizeof text)
        read_bytes(f, text, stored, size);
    if (size <= sizeof text && f->status == ATTN_OK &&
        attn_json_load(&state, text, size, JSON_REJECT_DUPLICATES, &why) == ATTN_NO_MEMORY)
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
    read_numbers(f, w->values, ".weight.quant_map", "F32", 16);
    const size_t scales = attn_ceil_div(count, w->group);
    if (find(f, &w->nested, ".weight.nested_absmax")) {
        w->nested_group = state_size(f, state, "nested_blocksize", name);
        const json_t *offset = json_object_get(state, "nested_offset");
        if (!json_is_number(offset))
            FAIL(f, ATTN_MALFORMED, name, "nested_offset is missing in '%.96s'", name);
        w->nested_offset = (float)json_number_value(offset);
        check(f, &w->nested, "F32", attn_ceil_div(scales, w->nested_group), 1);
        read_numbers(f, w->nested_values, ".weight.nested_quant_map", "F32", 256);
    }
    need(f, &w->scales, ".weight.absmax", w->nested.entry != NULL ? "U8" : "F32", scales, 1);
    json_decref(state);
}

/* ---- Finding --------------------------------------------------------------------------------- */

static const char formats[] =
    "dense float-quantized int-quantized naive-quantized pack-quantized nvfp4-pack-quantized "
    "mxfp4-pack-quantized mixed-precision";

/* Describes the weight whose codes have been found. */
static void describe(struct finder *f)
{
    const struct attn_quantization *says = f->says;
    const char *dtype = f->w->codes.entry->dtype->name;
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
    else if (says->method == ATTN_QUANT_COMPRESSED && says->format[0] != '\0' &&
             attn_text_word_number(formats, says->format) == 0)
        FAIL(f, ATTN_UNSUPPORTED, "format",
             "quantization_config.format is \"%.31s\", which is not read", says->format);
    else if (says->method == ATTN_QUANT_GPTQ || says->method == ATTN_QUANT_AWQ)
        describe_words(f);
    else if (says->method == ATTN_QUANT_MLX)
        describe_mlx(f);
    else if (says->method == ATTN_QUANT_TORCHAO && strstr("I8 U8", dtype) != NULL &&
             f->w->in % 2 == 0 && second(&f->w->codes) == f->w->in / 2)
        describe_int4(f);
    else if (says->method == ATTN_QUANT_TORCHAO &&
             (strstr("F8_E4M3 I8", dtype) == NULL || second(&f->w->codes) != f->w->in))
        FAIL(
            f, ATTN_UNSUPPORTED, f->w->codes.entry->name,
            "tensor '%.96s' has torchao's codes in the order of a device, which are not read: save "
            "them with int4_packing_format plain, or convert the weights to bf16",
            f->w->codes.entry->name);
    else if (strcmp(dtype, "F8_E4M3") == 0)
        describe_fp8(f);
    else if (strcmp(dtype, "I8") == 0)
        describe_int8(f);
    else if (strcmp(dtype, "I32") == 0)
        describe_packed(f);
    else if (says->method == ATTN_QUANT_BITSANDBYTES)
        describe_nf4(f);
    else
        describe_fp4(f);
}

enum attn_status attn_quantization_find(struct attn_tensor *out, struct attn_checkpoint *checkpoint,
                                        const struct attn_quantization *quantization,
                                        const char *name, size_t rows, size_t columns,
                                        struct attn_error *error)
{
    static const char end[] = ".weight";
    static const char *const codes[] = {".qweight", ".weight_packed", ".weight_qdata", ".weight"};
    struct finder f = {.checkpoint = checkpoint, .says = quantization, .error = error};
    struct attn_stored found = {.entry = NULL}, state;
    const size_t length = strlen(name);
    out->entry = NULL;
    if (length < sizeof end || strcmp(name + length - (sizeof end - 1), end) != 0)
        return ATTN_OK;
    snprintf(f.base, sizeof f.base, "%.*s", (int)(length - (sizeof end - 1)), name);
    size_t tried = 0;
    while (tried < ATTN_COUNT(codes) && !find(&f, &found, codes[tried]))
        tried++;
    const bool plain = strcmp(codes[attn_min(tried, ATTN_COUNT(codes) - 1)], end) == 0;
    const bool stored_as_floats = found.entry != NULL && plain && found.entry->dtype->readable;
    if (f.status != ATTN_OK || found.entry == NULL ||
        (stored_as_floats
             ? !find_state(&f, &state)
             : plain && strstr("F8_E4M3 I8 U8 I32 U32", found.entry->dtype->name) == NULL))
        return f.status;
    if (rows == 0 || columns == 0)
        return attn_fail(error, ATTN_MALFORMED, found.entry->name,
                         "tensor '%.96s' is there, but the configuration denies it",
                         found.entry->name);
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
        f.w->parts[f.w->num_parts++] = found.entry->name;
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

bool attn_quantization_has(const struct attn_quantized *w, const char *name)
{
    static const char *const of_activations[] = {".input_scale",
                                                 ".input_global_scale",
                                                 ".input_zero_point",
                                                 ".input_scale_ub",
                                                 ".activation_scale",
                                                 "._weight_act_quant_scale",
                                                 "._weight_act_quant_zero_point"};
    const size_t base = strlen(w->name) - strlen(".weight");
    bool has = false;
    for (size_t i = 0; i < w->num_parts; i++)
        has = has || strcmp(w->parts[i], name) == 0;
    for (size_t i = 0; i < ATTN_COUNT(of_activations) && strncmp(w->name, name, base) == 0; i++)
        has = has || strcmp(name + base, of_activations[i]) == 0;
    return has;
}

enum attn_status attn_quantization_is_zero(bool *out, const struct attn_quantization *says,
                                           const struct attn_tensor *tensor,
                                           struct attn_error *error)
{
    float numbers[1024];
    enum attn_status status = ATTN_OK;
    const size_t count = elements(tensor->entry);
    *out = says->method == ATTN_QUANT_GPTQ && tensor->entry->dtype->readable;
    for (size_t at = 0, n; at < count && *out && status == ATTN_OK; at += n) {
        n = attn_min(count - at, sizeof numbers / sizeof *numbers);
        status = attn_tensor_read_f32(numbers, tensor, at, n, error);
        for (size_t i = 0; i < n && status == ATTN_OK; i++)
            *out = *out && numbers[i] == 0;
    }
    return status;
}
