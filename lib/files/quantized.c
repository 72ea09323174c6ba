/* quantized.c: codes, scales and zero points of rows -> float32. */
#include "files/quantized.h"

#include <math.h>
#include <string.h>

#include "basics/half_float.h"
#include "basics/mem.h"
#include "basics/status.h"
#include "basics/widen.h"

#define MOST_ROWS 64 /* decoded at a time */

/* ---- Small floats ---------------------------------------------------------------------------- */

/* sign, 4 bits of exponent with bias 7, 3 of fraction. */
float attn_e4m3_to_float(uint8_t code)
{
    const int exponent = code >> 3 & 15, fraction = code & 7;
    const float size =
        exponent == 0 ? ldexpf((float)fraction, -9) : ldexpf((float)(8 + fraction), exponent - 10);
    if (exponent == 15 && fraction == 7)
        return NAN;
    return code & 0x80 ? -size : size;
}

float attn_e2m1_to_float(uint8_t code)
{
    static const float sizes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -sizes[code & 7] : sizes[code & 7];
}

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Rows [first, first + rows) that are being decoded. */
struct piece {
    const struct attn_quantized *w;
    size_t first, rows;
    float *scales, *zeros, *biases; /* [rows][groups]; zeros and biases NULL where there are none */
    uint8_t *raw;                   /* [raw_bytes] */
    size_t raw_bytes;
    struct attn_error *error;
    enum attn_status status; /* stays after a fault */
};

static size_t size_of(const struct attn_stored *stored) { return stored->entry->dtype->bits / 8; }

/* Reads bytes of a tensor into `to`. */
static void read_bytes(struct piece *p, void *to, const struct attn_stored *stored, size_t first,
                       size_t count)
{
    const void *bytes = to;
    if (p->status == ATTN_OK)
        p->status = attn_safetensors_read_bytes(&bytes, stored->file, stored->entry, first, count,
                                                to, p->error);
    if (p->status == ATTN_OK && bytes != to)
        memcpy(to, bytes, count);
}

/* Element i of the numbers at `raw`, of the tensor's dtype. */
static float number_at(const struct attn_stored *stored, const uint8_t *raw, size_t i)
{
    const char *dtype = stored->entry->dtype->name;
    uint16_t half;
    float number;
    memcpy(&half, raw + 2 * i, size_of(stored) == 2 ? sizeof half : 0);
    if (strcmp(dtype, "F16") == 0)
        return attn_f16_to_float(half);
    if (strcmp(dtype, "BF16") == 0)
        return attn_bf16_to_float(half);
    if (strcmp(dtype, "F8_E4M3") == 0)
        return attn_e4m3_to_float(raw[i]);
    if (strcmp(dtype, "F8_E8M0") == 0)
        return ldexpf(1, raw[i] - 127);
    memcpy(&number, raw + 4 * i, sizeof number);
    return number;
}

/* Reads `count` numbers of the tensor, from number `first` on, into out, `stride` apart. */
static void read_numbers(struct piece *p, float *out, size_t stride, const struct attn_stored *from,
                         size_t first, size_t count)
{
    read_bytes(p, p->raw, from, first * size_of(from), count * size_of(from));
    for (size_t i = 0; i < count && p->status == ATTN_OK; i++)
        out[i * stride] = number_at(from, p->raw, i);
}

/* Scales of scales: those are codes of one byte. */
static void read_nested(struct piece *p, size_t first, size_t count)
{
    const struct attn_quantized *w = p->w;
    read_bytes(p, p->raw, &w->scales, first, count);
    for (size_t i = 0; i < count && p->status == ATTN_OK; i++)
        p->scales[i] = w->nested_values[p->raw[i]];
    float outer = 0;
    for (size_t i = 0; i < count && p->status == ATTN_OK; i++) {
        const size_t n = (first + i) / w->nested_group;
        uint8_t bytes[sizeof(float)];
        if (i == 0 || (first + i) % w->nested_group == 0) {
            read_bytes(p, bytes, &w->nested, n * sizeof outer, sizeof outer);
            memcpy(&outer, bytes, sizeof outer);
        }
        p->scales[i] = p->scales[i] * outer + w->nested_offset;
    }
}

/* Reads the scales of the rows: p->scales becomes [rows][groups], or by elements the scales from
 * that of the first one on. */
static void read_scales(struct piece *p)
{
    const struct attn_quantized *w = p->w;
    const size_t first = p->first * w->in / w->group;
    const size_t end = ((p->first + p->rows) * w->in - 1) / w->group + 1;
    size_t count = p->rows * w->groups;
    if (w->scales_by_element) {
        count = end - first;
        if (w->nested.entry != NULL)
            read_nested(p, first, count);
        else
            read_numbers(p, p->scales, 1, &w->scales, first, count);
    } else if (w->scales_by_group) {
        for (size_t g = 0; g < w->groups; g++)
            read_numbers(p, p->scales + g, w->groups, &w->scales, g * w->out + p->first, p->rows);
    } else {
        for (size_t r = 0; r < p->rows; r++) {
            const size_t row = w->block_rows == 0 ? 0 : (p->first + r) / w->block_rows;
            read_numbers(p, p->scales + r * w->groups, 1, &w->scales, row * w->groups, w->groups);
        }
    }
    for (size_t i = 0; i < count && w->scale_factor != 1; i++)
        p->scales[i] *= w->scale_factor;
    for (size_t i = 0; i < count && w->scale_divisor != 1; i++)
        p->scales[i] /= w->scale_divisor;
}

/* Code i of a stream of codes of `bits` bits, lowest first. */
static unsigned code_at(const uint8_t *stream, size_t i, unsigned bits)
{
    unsigned code = 0;
    for (size_t bit = i * bits, done = 0; done < bits; done++, bit++)
        code |= (unsigned)(stream[bit / 8] >> bit % 8 & 1) << done;
    return code;
}

/* The place in a word of AWQ of output i of eight. */
static const uint8_t awq_place[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* Words [lines][words of `each` numbers] of columns first to first + rows: code(line, row). */
static unsigned column_code(const uint8_t *words, size_t row, const struct attn_quantized *w,
                            bool awq)
{
    const size_t each = 32 / w->bits;
    return code_at(words + row / each * 4, awq ? awq_place[row % each] : row % each, w->bits);
}

static void read_zeros(struct piece *p)
{
    const struct attn_quantized *w = p->w;
    const size_t each = 32 / w->bits, groups = w->groups;
    if (w->zero_order == ATTN_ZERO_NUMBER) {
        read_bytes(p, p->raw, &w->zeros, p->first * groups, p->rows * groups);
        for (size_t i = 0; i < p->rows * groups; i++)
            p->zeros[i] = (float)(int8_t)p->raw[i];
        return;
    }
    for (size_t g = 0; g < groups && w->zero_order >= ATTN_ZERO_BY_GROUP; g++) {
        const size_t line = w->out / each * 4, begin = p->first / each * 4;
        const size_t end = ((p->first + p->rows - 1) / each + 1) * 4;
        read_bytes(p, p->raw, &w->zeros, g * line + begin, end - begin);
        for (size_t r = 0; r < p->rows; r++)
            p->zeros[r * groups + g] = (float)(column_code(p->raw, p->first % each + r, w,
                                                           w->zero_order == ATTN_ZERO_AWQ) +
                                               w->zero_more);
    }
    /* a column g of words is a stream of bits over the rows */
    for (size_t r = 0; r < p->rows && w->zero_order == ATTN_ZERO_BY_COLUMN; r++) {
        const size_t bit = (p->first + r) * w->bits, word = bit / 32;
        const bool split = bit % 32 + w->bits > 32;
        read_bytes(p, p->raw, &w->zeros, word * groups * 4, (split ? 2 : 1) * groups * 4);
        for (size_t g = 0; g < groups; g++) {
            uint8_t both[8] = {0};
            memcpy(both, p->raw + g * 4, 4);
            if (split)
                memcpy(both + 4, p->raw + (groups + g) * 4, 4);
            unsigned code = 0;
            for (unsigned done = 0; done < w->bits; done++) {
                const size_t at = bit % 32 + done;
                code |= (unsigned)(both[at / 8] >> at % 8 & 1) << done;
            }
            p->zeros[r * groups + g] = (float)code;
        }
    }
}

/* out[r][c] = value(code(r, c)). */
static void read_codes(struct piece *p, float *out)
{
    const struct attn_quantized *w = p->w;
    const size_t in = w->in, each = 32 / w->bits;
    if (w->code_order == ATTN_CODES_BY_ROW) {
        const size_t row_bytes = w->codes.entry->end - w->codes.entry->begin;
        const size_t bytes = row_bytes / w->out;
        read_bytes(p, p->raw, &w->codes, p->first * bytes, p->rows * bytes);
        for (size_t r = 0; r < p->rows && p->status == ATTN_OK; r++)
            for (size_t c = 0; c < in; c++)
                out[r * in + c] = w->values[w->bits == 8 ? p->raw[r * bytes + c]
                                                         : code_at(p->raw + r * bytes, c, w->bits)];
    } else if (w->code_order == ATTN_CODES_ALL) {
        const size_t begin = p->first * in / 2, end = ((p->first + p->rows) * in + 1) / 2;
        read_bytes(p, p->raw, &w->codes, begin, end - begin);
        for (size_t i = 0; i < p->rows * in && p->status == ATTN_OK; i++) {
            const size_t k = p->first * in + i;
            out[i] = w->values[p->raw[k / 2 - begin] >> (k % 2 == 0 ? 4 : 0) & 15];
        }
    } else if (w->code_order == ATTN_CODES_BY_INPUT) {
        for (size_t line = 0; line < attn_ceil_div(in, each); line++) {
            read_bytes(p, p->raw, &w->codes, (line * w->out + p->first) * 4, p->rows * 4);
            for (size_t c = line * each; c < attn_min(in, (line + 1) * each); c++)
                for (size_t r = 0; r < p->rows && p->status == ATTN_OK; r++)
                    out[r * in + c] = w->values[code_at(p->raw + 4 * r, c % each, w->bits)];
        }
    } else {
        const size_t line = w->out / each * 4, begin = p->first / each * 4;
        const size_t end = ((p->first + p->rows - 1) / each + 1) * 4;
        for (size_t c = 0; c < in; c++) {
            read_bytes(p, p->raw, &w->codes, c * line + begin, end - begin);
            for (size_t r = 0; r < p->rows && p->status == ATTN_OK; r++)
                out[r * in + c] = w->values[column_code(p->raw, p->first % each + r, w, true)];
        }
    }
}

/* out[r][c] becomes (out[r][c] - zero) * scale + bias. */
static void apply_scales(const struct piece *p, float *out)
{
    const struct attn_quantized *w = p->w;
    const size_t base = p->first * w->in / w->group;
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < w->in; c++) {
            const size_t in_row = w->group_of != NULL ? w->group_of[c] : c / w->group;
            const size_t g = w->scales_by_element ? ((p->first + r) * w->in + c) / w->group - base
                                                  : r * w->groups + in_row;
            float *x = &out[r * w->in + c];
            *x -= p->zeros != NULL ? p->zeros[g] : 0;
            *x *= p->scales[g];
            *x += p->biases != NULL ? p->biases[g] : 0;
        }
}

/* Bytes of the largest part of a tensor that is read at a time. */
static size_t raw_bytes(const struct attn_quantized *w)
{
    const size_t row = attn_max(w->in, 8) * 4; /* of codes or scales of any form */
    return attn_max(MOST_ROWS * row, w->groups * 8);
}

/* Decodes whole rows. */
static enum attn_status decode_rows(float *out, const struct attn_quantized *w, size_t first,
                                    size_t rows, struct attn_error *error)
{
    const size_t numbers = rows * w->in / w->group + rows * w->groups + 2;
    struct piece p = {.w = w, .first = first, .rows = rows, .error = error};
    float *room = attn_alloc(3 * numbers, sizeof *room);
    p.raw = attn_alloc(raw_bytes(w), 1);
    if (room == NULL || p.raw == NULL) {
        attn_free(room);
        attn_free(p.raw);
        return attn_fail_memory(error, 3 * numbers * sizeof *room + raw_bytes(w));
    }
    p.scales = room;
    p.zeros = w->zero_order != ATTN_ZERO_NONE ? room + numbers : NULL;
    p.biases = w->biases.entry != NULL ? room + 2 * numbers : NULL;
    read_scales(&p);
    if (p.zeros != NULL)
        read_zeros(&p);
    for (size_t r = 0; r < rows && p.biases != NULL; r++)
        read_numbers(&p, p.biases + r * w->groups, 1, &w->biases, (first + r) * w->groups,
                     w->groups);
    read_codes(&p, out);
    if (p.status == ATTN_OK)
        apply_scales(&p, out);
    attn_free(room);
    attn_free(p.raw);
    return p.status;
}

enum attn_status attn_quantized_read_f32(float *out, const struct attn_quantized *w, size_t first,
                                         size_t count, struct attn_error *error)
{
    float *row = NULL;
    enum attn_status status = ATTN_OK;
    for (size_t done = 0; done < count && status == ATTN_OK;) {
        const size_t at = first + done, r = at / w->in, c = at % w->in;
        if (c == 0 && count - done >= w->in) {
            const size_t rows = attn_min((count - done) / w->in, MOST_ROWS);
            status = decode_rows(out + done, w, r, rows, error);
            done += rows * w->in;
            continue;
        }
        row = row != NULL ? row : attn_alloc(w->in, sizeof *row);
        status = row != NULL ? decode_rows(row, w, r, 1, error)
                             : attn_fail_memory(error, w->in * sizeof *row);
        const size_t part = attn_min(w->in - c, count - done);
        if (status == ATTN_OK)
            memcpy(out + done, row + c, part * sizeof *out);
        done += part;
    }
    attn_free(row);
    for (size_t i = 0; i < count && status == ATTN_OK; i++)
        if (!isfinite(out[i]))
            status = attn_fail(error, ATTN_NON_FINITE, w->entry.name,
                               "tensor '%.96s' is not finite at %zu", w->entry.name, first + i);
    return status;
}
