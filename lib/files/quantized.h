/* quantized.h: weights that a checkpoint keeps as codes with scales, in several tensors.
 *
 * Formula, of output r and input c:
 *
 *     W[r][c] = (value(code(r, c)) - zero(r, g)) * scale(r, g) [+ bias(r, g)],   g the group of c
 *
 * A form says where codes, scales, zero points and groups lie.  Numbers are widened to float32
 * first; the difference is exact, the product is rounded once and so is the sum: the bits that
 * each format's own code gives where it computes in float32.
 *
 * Sources: the writers and readers of fp8 (DeepSeek), compressed-tensors, AutoGPTQ and GPTQModel,
 * AutoAWQ, bitsandbytes, modelopt, torchao and MLX. */
#ifndef ATTN_LIB_FILES_QUANTIZED_H
#define ATTN_LIB_FILES_QUANTIZED_H

#include "files/safetensors.h"

/* A tensor and the file that it is in; entry NULL: there is none. */
struct attn_stored {
    const struct attn_safetensors *file;
    const struct attn_tensor_entry *entry;
};

/* How codes of `bits` bits lie in their tensor. */
enum attn_code_order {
    ATTN_CODES_BY_ROW,   /* a row is a stream of bits, lowest first: bytes, words of 32 bits */
    ATTN_CODES_ALL,      /* so is the whole matrix, but the higher nibble of a byte comes first */
    ATTN_CODES_BY_INPUT, /* [in / n][out] words, of n inputs each, lowest first: GPTQ */
    ATTN_CODES_BY_OUTPUT /* [in][out / 8] words of 8 outputs, in the order 0 2 4 6 1 3 5 7: AWQ */
};

/* How zero points lie in theirs. */
enum attn_zero_order {
    ATTN_ZERO_NONE,
    ATTN_ZERO_NUMBER,    /* signed bytes, as many as scales */
    ATTN_ZERO_BY_COLUMN, /* [out / n][groups] words: a column is a stream of bits over the rows */
    ATTN_ZERO_BY_GROUP,  /* [groups][out / n] words, plus zero_more, modulo 2^bits: GPTQ */
    ATTN_ZERO_AWQ        /* the same in the order of AWQ's codes */
};

#define ATTN_QUANTIZED_PARTS 8 /* tensors of a weight, at most */

struct attn_quantized {
    struct attn_tensor_entry entry;      /* first: the weight that this stands for, [out][in] */
    struct attn_safetensors_dtype dtype; /* the entry's */
    char name[ATTN_SAFETENSORS_MAX_NAME + 1], label[48];
    size_t out, in;
    const char *parts[ATTN_QUANTIZED_PARTS]; /* [num_parts] names of the tensors that it is in */
    size_t num_parts;

    struct attn_stored codes;
    enum attn_code_order code_order;
    unsigned bits;
    float values[256]; /* of each code */

    struct attn_stored scales; /* [out / block_rows][groups], or [groups][out] */
    bool scales_by_group;
    bool scales_by_element; /* [elements / group], across the ends of rows: bitsandbytes */
    size_t block_rows;      /* rows with the same scales; 0: all rows */
    float scale_factor, scale_divisor; /* of all scales: 1 but for NVFP4 and int8 of bitsandbytes */
    struct attn_stored nested;         /* scales of the scales, which are codes then */
    size_t nested_group;
    float nested_values[256], nested_offset;

    size_t group, groups;     /* inputs with the same scale; groups of a row */
    struct attn_stored index; /* the group of each input, [in]; none: c / group */
    size_t *group_of;         /* [in], read from it; NULL: none */

    struct attn_stored zeros;
    enum attn_zero_order zero_order;
    unsigned zero_more;

    struct attn_stored biases; /* [out][groups], or as scales_by_group; none: 0 */
};

/* out[i] = element first + i of the flattened weight, i < count.  Any thread.
 * Errors: ATTN_NON_FINITE (with tensor and index), ATTN_IO, ATTN_NO_MEMORY. */
enum attn_status attn_quantized_read_f32(float *out, const struct attn_quantized *weight,
                                         size_t first, size_t count, struct attn_error *error);

/* Rows that are read at a time at least, so that what lies together of their codes is worth a
 * read; and bytes that a thread takes meanwhile. */
size_t attn_quantized_rows(const struct attn_quantized *weight);
size_t attn_quantized_scratch(const struct attn_quantized *weight);

/* E4M3 (without infinities; both NaN codes become NaN) and E2M1 to float32. */
float attn_e4m3_to_float(uint8_t code);
float attn_e2m1_to_float(uint8_t code);

#endif
