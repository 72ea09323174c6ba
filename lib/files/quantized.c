/* quantized.c: codes, scales and zero points of rows -> float32. */
#include "files/quantized.h"

#include <math.h>
#include <string.h>

#include "basics/half_float.h"
#include "basics/status.h"
#include "basics/widen.h"

/* ---- Small floats ---------------------------------------------------------------------------- */

/* sign, 4 bits of exponent with bias 7, 3 of fraction. */
float attn_e4m3_to_float(uint8_t code)
{
    const uint32_t exponent = code >> 3 & 15, fraction = code & 7;
    const float size = exponent == 0 ? (float)fraction * 0x1p-9f
                                     : attn_bits_to_float((exponent + 120) << 23 | fraction << 20);
    if (exponent == 15 && fraction == 7)
        return NAN;
    return code & 0x80 ? -size : size;
}

float attn_e2m1_to_float(uint8_t code)
{
    static const float sizes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    return code & 8 ? -sizes[code & 7] : sizes[code & 7];
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Rows [first, first + rows) that are being decoded.  Scales, zero points and biases are of row r
 * and group g at r * row_step + g * group_step; by elements, of all groups from that of the first
 * element on. */
struct decoder {
    const struct attn_quantized *w;
    size_t first, rows;
    size_t row_step, group_step;
    float *scales, *zeros, *biases; /* zeros and biases NULL where there are none */
    uint8_t *codes;                 /* as read_codes puts them */
    uint8_t *raw;                   /* of what is being read */
    struct attn_error *error;
    enum attn_status status; /* stays after a fault */
};

#define MOST_LINES 16             /* of words that are read before they are put into rows */
#define MAX_READ_AMPLIFICATION 16 /* times what is wanted of a line: up to here it is read whole */

/* Words of 32 bits in which the codes of `count` inputs lie. */
static size_t words_of(const struct attn_quantized *w, size_t count)
{
    return attn_ceil_div(count * w->bits, 32);
}

/* Words of eight outputs, or as many as there are, that rows [first, first + rows) are in. */
static size_t words_across(const struct attn_quantized *w, size_t first, size_t rows)
{
    const size_t each = 32 / w->bits;
    return (first + rows - 1) / each + 1 - first / each;
}

/* Scales of `rows` rows, at most. */
static size_t most_scales(const struct attn_quantized *w, size_t rows)
{
    return rows * w->in / w->group + rows * w->groups + 2;
}

static size_t most_code_bytes(const struct attn_quantized *w, size_t rows)
{
    return w->code_order == ATTN_CODES_BY_OUTPUT ? (rows / 8 + 2) * 4 * w->in
                                                 : rows * 4 * words_of(w, w->in) + rows + 2;
}

/* A line of words: those of as many outputs as rows are read of it, or MAX_READ_AMPLIFICATION times
 * as many. */
static size_t max_raw_bytes(const struct attn_quantized *w, size_t rows)
{
    const size_t lines = MOST_LINES * MAX_READ_AMPLIFICATION * (rows + 1);
    return 4 * (most_scales(w, rows) + lines + 2 * w->groups + 2);
}

/* Reads bytes of a tensor into `to`. */
static void read_bytes(struct decoder *p, void *to, const struct attn_stored *stored, size_t first,
                       size_t count)
{
    const void *bytes = to;
    if (p->status == ATTN_OK)
        p->status = attn_safetensors_read_bytes(&bytes, stored->file, stored->entry, first, count,
                                                to, p->error);
    if (p->status != ATTN_OK)
        memset(to, 0, count);
    else if (bytes != to)
        memcpy(to, bytes, count);
}

/* Reads numbers of the tensor, from number `first` on. */
static void read_numbers(struct decoder *p, float *out, const struct attn_stored *from,
                         size_t first, size_t count)
{
    const char *dtype = from->entry->dtype->name;
    const size_t size = from->entry->dtype->bits / 8;
    read_bytes(p, p->raw, from, first * size, count * size);
    if (strcmp(dtype, "F16") == 0)
        (void)attn_widen_f16(out, (const uint16_t *)(const void *)p->raw, count);
    else if (strcmp(dtype, "BF16") == 0)
        (void)attn_widen_bf16(out, (const uint16_t *)(const void *)p->raw, count);
    else if (size == sizeof *out)
        memcpy(out, p->raw, count * sizeof *out);
    else
        for (size_t i = 0; i < count; i++)
            out[i] = strcmp(dtype, "F8_E4M3") == 0 ? attn_e4m3_to_float(p->raw[i])
                                                   : ldexpf(1, p->raw[i] - 127);
}

/* Scales of scales: those are codes of one byte. */
static void read_nested(struct decoder *p, size_t first, size_t count)
{
    const struct attn_quantized *w = p->w;
    float outer = 0;
    read_bytes(p, p->raw, &w->scales, first, count);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || (first + i) % w->nested_group == 0)
            read_bytes(p, &outer, &w->nested, (first + i) / w->nested_group * sizeof outer,
                       sizeof outer);
        p->scales[i] = w->nested_values[p->raw[i]] * outer + w->nested_offset;
    }
}

/* Reads the numbers of the rows: [rows][groups], of which `rows_per_scale` are alike (0: all). */
static void read_rows(struct decoder *p, float *out, const struct attn_stored *from,
                      size_t rows_per_scale)
{
    const size_t groups = p->w->groups;
    if (rows_per_scale == 1)
        read_numbers(p, out, from, p->first * groups, p->rows * groups);
    for (size_t r = 0; r < p->rows && rows_per_scale != 1; r++) {
        const size_t row = rows_per_scale == 0 ? 0 : (p->first + r) / rows_per_scale;
        const bool again = r > 0 && (rows_per_scale == 0 || (p->first + r) % rows_per_scale != 0);
        if (again)
            memcpy(out + r * groups, out + (r - 1) * groups, groups * sizeof *out);
        else
            read_numbers(p, out + r * groups, from, row * groups, groups);
    }
}

/* Reads the numbers of the rows as scales lie: [groups][rows], or as read_rows does. */
static void read_spread(struct decoder *p, float *out, const struct attn_stored *from,
                        size_t rows_per_scale)
{
    const struct attn_quantized *w = p->w;
    if (!w->scales_by_group)
        read_rows(p, out, from, rows_per_scale);
    for (size_t g = 0; g < w->groups && w->scales_by_group; g++)
        read_numbers(p, out + g * p->rows, from, g * w->out + p->first, p->rows);
}

static void read_scales(struct decoder *p)
{
    const struct attn_quantized *w = p->w;
    const size_t first = p->first * w->in / w->group;
    size_t count = p->rows * w->groups;
    if (w->scales_by_element) {
        count = ((p->first + p->rows) * w->in - 1) / w->group + 1 - first;
        if (w->nested.entry != NULL)
            read_nested(p, first, count);
        else
            read_numbers(p, p->scales, &w->scales, first, count);
    } else
        read_spread(p, p->scales, &w->scales, w->block_rows);
    for (size_t i = 0; i < count && w->scale_factor != 1; i++)
        p->scales[i] *= w->scale_factor;
    for (size_t i = 0; i < count && w->scale_divisor != 1; i++)
        p->scales[i] /= w->scale_divisor;
}

/* Code i of a stream of codes of at most eight bits, lowest first. */
static unsigned code_at(const uint8_t *stream, size_t i, unsigned bits)
{
    const size_t bit = i * bits;
    const uint8_t *byte = stream + bit / 8;
    const unsigned high = bit % 8 + bits > 8 ? byte[1] : 0u;
    return (byte[0] | high << 8) >> bit % 8 & ((1u << bits) - 1);
}

/* Where output i of eight lies in a word of AWQ. */
static const uint8_t awq_order[8] = {0, 4, 1, 5, 2, 6, 3, 7};

/* A line g of words holds the zero points of `each` rows in every word. */
static void read_zeros_of_group(struct decoder *p, size_t g)
{
    const struct attn_quantized *w = p->w;
    const size_t each = 32 / w->bits, line = w->out / each * 4, begin = p->first / each * 4;
    read_bytes(p, p->raw, &w->zeros, g * line + begin, 4 * words_across(w, p->first, p->rows));
    for (size_t r = 0; r < p->rows; r++) {
        const size_t at = p->first % each + r, within = at % each;
        const size_t in_word = w->zero_order == ATTN_ZERO_AWQ ? awq_order[within] : within;
        p->zeros[g * p->rows + r] =
            (float)((code_at(p->raw + at / each * 4, in_word, w->bits) + w->zero_more) &
                    ((1u << w->bits) - 1));
    }
}

/* A column of words is a stream of zero points over the rows. */
static void read_zeros_of_row(struct decoder *p, size_t r)
{
    const struct attn_quantized *w = p->w;
    const size_t bit = (p->first + r) * w->bits, groups = w->groups;
    const size_t lines = bit % 32 + w->bits > 32 ? 2 : 1;
    read_bytes(p, p->raw, &w->zeros, bit / 32 * groups * 4, lines * groups * 4);
    for (size_t g = 0; g < groups; g++) {
        uint32_t words[2] = {0, 0};
        for (size_t i = 0; i < lines; i++)
            memcpy(&words[i], p->raw + (i * groups + g) * 4, 4);
        const uint64_t both = words[0] | (uint64_t)words[1] << 32;
        p->zeros[r * groups + g] = (float)(both >> bit % 32 & ((1u << w->bits) - 1));
    }
}

static void read_zeros(struct decoder *p)
{
    const struct attn_quantized *w = p->w;
    const size_t first = w->block_rows == 0 ? 0 : p->first * w->groups;
    const size_t count = w->block_rows == 0 ? 1 : p->rows * w->groups;
    if (w->zero_order == ATTN_ZERO_NUMBER)
        read_bytes(p, p->raw, &w->zeros, first, count);
    for (size_t i = 0; i < p->rows * w->groups && w->zero_order == ATTN_ZERO_NUMBER; i++)
        p->zeros[i] = (float)(int8_t)p->raw[count == 1 ? 0 : i];
    for (size_t g = 0; g < w->groups && w->zero_order >= ATTN_ZERO_BY_GROUP; g++)
        read_zeros_of_group(p, g);
    for (size_t r = 0; r < p->rows && w->zero_order == ATTN_ZERO_BY_COLUMN; r++)
        read_zeros_of_row(p, r);
}

/* Reads words [lines][across], those of a line at byte `begin` + line * pitch of the codes, to
 * p->codes [across][lines]: some lines at a time, since what is written then is a cache line.
 * Copying some bytes for nothing takes less time than a read for each line. */
static void read_columns(struct decoder *p, size_t lines, size_t across, size_t begin, size_t pitch)
{
    const size_t wanted = across * 4;
    const size_t step = pitch <= MAX_READ_AMPLIFICATION * wanted ? pitch : wanted;
    for (size_t line = 0, n; line < lines; line += n) {
        n = attn_min(lines - line, MOST_LINES);
        if (step == pitch)
            read_bytes(p, p->raw, &p->w->codes, begin + line * pitch, (n - 1) * pitch + wanted);
        for (size_t i = 0; i < n && step != pitch; i++)
            read_bytes(p, p->raw + i * wanted, &p->w->codes, begin + (line + i) * pitch, wanted);
        for (size_t column = 0; column < across; column++)
            for (size_t i = 0; i < n; i++)
                memcpy(p->codes + (column * lines + line + i) * 4, p->raw + i * step + column * 4,
                       4);
    }
}

/* Reads the codes: rows of bytes [rows][words] as they stand, those by inputs as the same rows,
 * those by outputs as [words across][in]. */
static void read_codes(struct decoder *p)
{
    const struct attn_quantized *w = p->w;
    const size_t first = p->first, rows = p->rows;
    if (w->code_order == ATTN_CODES_BY_ROW) {
        const size_t bytes = (w->codes.entry->end - w->codes.entry->begin) / w->out;
        read_bytes(p, p->codes, &w->codes, first * bytes, rows * bytes);
    } else if (w->code_order == ATTN_CODES_ALL) {
        const size_t begin = first * w->in / 2, end = ((first + rows) * w->in + 1) / 2;
        read_bytes(p, p->codes, &w->codes, begin, end - begin);
    } else if (w->code_order == ATTN_CODES_BY_INPUT)
        read_columns(p, words_of(w, w->in), rows, first * 4, w->out * 4);
    else
        read_columns(p, w->in, words_across(w, first, rows), first / 8 * 4, w->out / 8 * 4);
}

/* ---- Decoding -------------------------------------------------------------------------------- */

/* out[c] = value(code(r, c)). */
static void decode_row(const struct decoder *p, float *restrict out, size_t r)
{
    const struct attn_quantized *w = p->w;
    const size_t in = w->in, k = w->code_order == ATTN_CODES_ALL ? (p->first + r) * in : 0;
    const float *restrict values = w->values;
    const uint8_t *row = p->codes;
    size_t c = 0;
    if (w->code_order == ATTN_CODES_BY_OUTPUT) {
        const size_t at = p->first % 8 + r;
        const uint32_t *words = (const uint32_t *)(const void *)row + at / 8 * in;
        const unsigned shift = 4u * awq_order[at % 8];
        for (; c < in; c++) /* without the table, whose code i is i, on whole vectors */
            out[c] = (float)(int32_t)(words[c] >> shift & 15);
    } else if (w->code_order == ATTN_CODES_ALL) { /* odd rows may begin within a byte */
        row += k / 2 - p->first * in / 2;
        for (size_t i = k % 2; c < in; c++, i++)
            out[c] = values[row[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
    } else {
        row += r * (w->code_order == ATTN_CODES_BY_ROW
                        ? (w->codes.entry->end - w->codes.entry->begin) / w->out
                        : words_of(w, in) * 4);
        for (; w->bits == 8 && c < in; c++)
            out[c] = values[row[c]];
        for (; w->bits == 4 && c + 1 < in; c += 2) {
            out[c] = values[row[c / 2] & 15];
            out[c + 1] = values[row[c / 2] >> 4];
        }
        for (; c < in; c++)
            out[c] = values[code_at(row, c, w->bits)];
    }
}

/* x[i] becomes (x[i] - zero) * scale, + bias where there is one: those at `at`. */
static void scale_numbers(const struct decoder *p, float *x, size_t count, size_t at)
{
    const float zero = p->zeros != NULL ? p->zeros[at] : 0, scale = p->scales[at];
    for (size_t i = 0; i < count; i++)
        x[i] = (x[i] - zero) * scale;
    for (size_t i = 0; p->biases != NULL && i < count; i++)
        x[i] += p->biases[at];
}

static void scale_row(const struct decoder *p, float *x, size_t r)
{
    const struct attn_quantized *w = p->w;
    const size_t row = (p->first + r) * w->in, base = p->first * w->in / w->group;
    for (size_t c = 0; w->group_of != NULL && c < w->in; c++)
        scale_numbers(p, x + c, 1, r * p->row_step + w->group_of[c] * p->group_step);
    for (size_t c = 0, n; w->group_of == NULL && c < w->in; c += n) {
        const size_t within = w->scales_by_element ? row + c : c, g = within / w->group;
        n = attn_min(w->in - c, w->group - within % w->group);
        scale_numbers(p, x + c, n,
                      w->scales_by_element ? g - base : r * p->row_step + g * p->group_step);
    }
}

/* Decodes whole rows. */
static enum attn_status decode_rows(float *out, const struct attn_quantized *w, size_t first,
                                    size_t rows, struct attn_error *error)
{
    const size_t numbers = most_scales(w, rows), bytes = most_code_bytes(w, rows);
    const size_t raw = max_raw_bytes(w, rows);
    struct decoder p = {.w = w,
                        .first = first,
                        .rows = rows,
                        .row_step = w->scales_by_group ? 1 : w->groups,
                        .group_step = w->scales_by_group ? rows : 1,
                        .error = error};
    float *room = attn_alloc(3 * numbers, sizeof *room);
    p.raw = attn_alloc(raw + bytes, 1);
    if (room == NULL || p.raw == NULL) {
        attn_free(room);
        attn_free(p.raw);
        return attn_fail_memory(error, 3 * numbers * sizeof *room + raw + bytes);
    }
    p.codes = p.raw + raw;
    p.scales = room;
    p.zeros = w->zero_order != ATTN_ZERO_NONE ? room + numbers : NULL;
    p.biases = w->biases.entry != NULL ? room + 2 * numbers : NULL;
    read_scales(&p);
    read_zeros(&p);
    if (p.biases != NULL)
        read_spread(&p, p.biases, &w->biases, 1);
    read_codes(&p);
    for (size_t r = 0; r < rows && p.status == ATTN_OK; r++) {
        decode_row(&p, out + r * w->in, r);
        scale_row(&p, out + r * w->in, r);
    }
    attn_free(room);
    attn_free(p.raw);
    return p.status;
}

size_t attn_quantized_rows(const struct attn_quantized *w)
{
    return w->code_order == ATTN_CODES_BY_OUTPUT  ? 256
           : w->code_order == ATTN_CODES_BY_INPUT ? 128
                                                  : 32;
}

size_t attn_quantized_scratch(const struct attn_quantized *w)
{
    const size_t rows = attn_min(attn_quantized_rows(w), w->out);
    return 3 * most_scales(w, rows) * sizeof(float) + max_raw_bytes(w, rows) +
           most_code_bytes(w, rows);
}

enum attn_status attn_quantized_read_f32(float *out, const struct attn_quantized *w, size_t first,
                                         size_t count, struct attn_error *error)
{
    float *row = NULL;
    enum attn_status status = ATTN_OK;
    for (size_t done = 0; done < count && status == ATTN_OK;) {
        const size_t at = first + done, r = at / w->in, c = at % w->in;
        if (c == 0 && count - done >= w->in) {
            const size_t rows = attn_min((count - done) / w->in, attn_quantized_rows(w));
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
    if (status != ATTN_OK || attn_all_finite(out, count))
        return status;
    return attn_fail(error, ATTN_NON_FINITE, w->entry.name, "tensor '%.96s' is not finite at %zu",
                     w->entry.name, first + attn_first_non_finite(out, count));
}
