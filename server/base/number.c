/* number.c: decimal text to float32, exactly.
 *
 * The digits become an integer w, eight at a time, and w * 10^q is computed in double, with a
 * relative error of some 2^-52.  The true value lies in a known interval around that; where both
 * ends of the interval round to the same float32, that float32 is the result.  As float32 has 29
 * bits less than double, the ends differ once in millions of numbers, and for numbers halfway
 * between two floats.  Then strtof decides, on text that this file has brought into a form that
 * does not depend on the locale.
 *
 * Lists are read by a shorter path (read_plain), which takes the common forms and leaves the rest
 * to the general one. */
#include "base/number.h"

#include <endian.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* On the path that almost all numbers take: each is read in some 40 cycles. */
#define INLINE inline __attribute__((always_inline))
#define REPEAT8(byte) (UINT64_C(0x0101010101010101) * (byte))
#define WHOLE_DIGITS 19 /* decimal digits that always fit 64 bits */

/* ---- Digits to an integer -------------------------------------------------------------------- */

/* The parts of a number: its value is `whole` * 10^exponent where it has at most WHOLE_DIGITS
 * significant digits; with more, `whole` has wrapped. */
struct decimal {
    bool valid, negative;
    uint64_t whole;
    int64_t exponent;                /* decimal exponent of the last digit */
    size_t count;                    /* digits, a single 0 before the point not counted */
    const char *digits, *digits_end; /* [first, one after the last); may contain a point */
};

static bool is_digit(const char *at, const char *limit)
{
    return at < limit && (unsigned char)(*at - '0') <= 9;
}

static __attribute__((noinline)) uint64_t load_tail(const char *at, const char *limit)
{
    uint64_t bytes = 0;
    memcpy(&bytes, at, (size_t)(limit - at));
    return le64toh(bytes);
}

/* Eight bytes of memory, the first in the lowest byte; zeros beyond the limit. */
static inline uint64_t load8(const char *at, const char *limit)
{
    uint64_t bytes;
    if (limit - at < 8)
        return load_tail(at, limit);
    memcpy(&bytes, at, 8);
    return le64toh(bytes);
}

/* The value of eight digits 0 to 9, one in each byte, the first and heaviest in the lowest: pairs,
 * fours and then eight are joined in parallel. */
static inline uint64_t join8(uint64_t digits)
{
    uint64_t pairs = (digits * (10 * 256 + 1)) >> 8 & UINT64_C(0x00FF00FF00FF00FF);
    uint64_t fours = (pairs * (100 * 65536 + 1)) >> 16 & UINT64_C(0x0000FFFF0000FFFF);
    return (fours * ((UINT64_C(10000) << 32) + 1)) >> 32;
}

/* A mark, the highest bit, in each byte that is no digit, of eight characters ^ '0'.  A byte's sum
 * carries into the next byte only where the byte is no digit, so the first mark is always right. */
static inline uint64_t not_digits(uint64_t digits)
{
    return ((digits + REPEAT8(0x80 - 10)) | digits) & REPEAT8(0x80);
}

/* The number of bytes before the first mark, of which there is at least one. */
static inline unsigned bytes_before(uint64_t marks) { return (unsigned)__builtin_ctzll(marks) / 8; }

/* A mask of the bytes before the first mark; of all bytes where there is no mark. */
static inline uint64_t digits_before(uint64_t marks) { return ((marks & -marks) >> 7) - 1; }

static inline uint64_t load(const char *at)
{
    uint64_t bytes;
    memcpy(&bytes, at, 8);
    return le64toh(bytes);
}

/* Appends the digits at `at` to *whole, which may wrap; returns the byte after them. */
static INLINE const char *read_digits(uint64_t *whole, const char *at, const char *limit)
{
    static const uint32_t scale[8] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    for (;;) {
        uint64_t digits = load8(at, limit) ^ REPEAT8('0');
        uint64_t others = not_digits(digits);
        if (others != 0) {
            unsigned count = bytes_before(others);
            *whole = *whole * scale[count] + join8(digits << (56 - 8 * count) << 8);
            return at + count;
        }
        *whole = *whole * 100000000 + join8(digits);
        at += 8;
    }
}

/* Reads the exponent that follows an 'e'.  The value saturates far beyond the length of any text,
 * so that it and the places after the point cancel correctly in "0.000...1e1000". */
static __attribute__((noinline)) const char *read_exponent(int64_t *exponent, bool *valid,
                                                           const char *at, const char *limit)
{
    int64_t value = 0;
    bool negative = at < limit && *at == '-';
    at += at < limit && (*at == '+' || *at == '-');
    *valid = is_digit(at, limit);
    for (; is_digit(at, limit); at++)
        if (value < INT64_MAX / 100)
            value = value * 10 + (*at - '0');
    *exponent = negative ? -value : value;
    return at;
}

/* Splits the number at `text` into its parts.  Returns the byte after it, or the first wrong
 * byte. */
static INLINE const char *scan(struct decimal *out, const char *text, const char *limit)
{
    const char *at = text;
    *out = (struct decimal){.negative = at < limit && *at == '-'};
    at += out->negative;
    out->digits = at;
    if (!is_digit(at, limit))
        return at;
    out->whole = (uint64_t)(*at++ - '0');
    if (is_digit(at, limit) && out->whole != 0) /* the order that is predicted better */
        at = read_digits(&out->whole, at, limit);
    out->count = (size_t)(at - out->digits) - (*out->digits == '0');
    if (at < limit && *at == '.') {
        const char *fraction = ++at;
        at = read_digits(&out->whole, at, limit);
        out->exponent = fraction - at;
        out->count += (size_t)(at - fraction);
        if (at == fraction)
            return at;
    }
    out->digits_end = at;
    out->valid = true;
    if (at < limit && (*at | 0x20) == 'e') {
        int64_t exponent;
        bool valid;
        at = read_exponent(&exponent, &valid, at + 1, limit);
        out->exponent += exponent;
        out->valid = valid;
    }
    return at;
}

/* Copies the first significant digits, at most `max`, and returns their number.  *exponent becomes
 * that of the last digit copied; *rest is set where a digit other than 0 was left out. */
static size_t significant_digits(char *out, size_t max, int64_t *exponent, bool *rest,
                                 const struct decimal *in)
{
    size_t copied = 0, dropped = 0;
    *rest = false;
    for (const char *at = in->digits; at < in->digits_end; at++) {
        if (*at == '.' || (*at == '0' && copied == 0))
            continue;
        if (copied < max) {
            out[copied++] = *at;
        } else {
            dropped++;
            *rest |= *at != '0';
        }
    }
    *exponent = in->exponent + (int64_t)dropped;
    return copied;
}

/* ---- Reading --------------------------------------------------------------------------------- */

/* Rounds a number that lies between `low` and `high`.  False, undecided, where these round to
 * different floats: then a point halfway between two floats lies between them. */
static INLINE bool round_between(float *out, double low, double high)
{
    *out = (float)low;
    return *out == (float)high;
}

#define POWER_MIN (-64) /* (2^64 - 1) * 10^-65 is below half of the least float32 */
#define POWER_MAX 38

/* Rounds w * 10^q, w > 0; where w has WHOLE_DIGITS digits, any number from there to (w+1) * 10^q.
 * False where the result is undecided.  The relative errors of w in double, of the power and of two
 * products are at most 2^-53 each, and 1/w is less than 2^-59: together less than 2^-50. */
static bool round_scaled(float *out, uint64_t w, int64_t q)
{
    static const double powers[POWER_MAX - POWER_MIN + 1] = {
        1e-64, 1e-63, 1e-62, 1e-61, 1e-60, 1e-59, 1e-58, 1e-57, 1e-56, 1e-55, 1e-54, 1e-53, 1e-52,
        1e-51, 1e-50, 1e-49, 1e-48, 1e-47, 1e-46, 1e-45, 1e-44, 1e-43, 1e-42, 1e-41, 1e-40, 1e-39,
        1e-38, 1e-37, 1e-36, 1e-35, 1e-34, 1e-33, 1e-32, 1e-31, 1e-30, 1e-29, 1e-28, 1e-27, 1e-26,
        1e-25, 1e-24, 1e-23, 1e-22, 1e-21, 1e-20, 1e-19, 1e-18, 1e-17, 1e-16, 1e-15, 1e-14, 1e-13,
        1e-12, 1e-11, 1e-10, 1e-9,  1e-8,  1e-7,  1e-6,  1e-5,  1e-4,  1e-3,  1e-2,  1e-1,  1e0,
        1e1,   1e2,   1e3,   1e4,   1e5,   1e6,   1e7,   1e8,   1e9,   1e10,  1e11,  1e12,  1e13,
        1e14,  1e15,  1e16,  1e17,  1e18,  1e19,  1e20,  1e21,  1e22,  1e23,  1e24,  1e25,  1e26,
        1e27,  1e28,  1e29,  1e30,  1e31,  1e32,  1e33,  1e34,  1e35,  1e36,  1e37,  1e38,
    };
    *out = q < 0 ? 0 : INFINITY;
    if (q < POWER_MIN || q > POWER_MAX)
        return true;
    double value = (double)w * powers[q - POWER_MIN];
    return round_between(out, value * (1 - 0x1p-50), value * (1 + 0x1p-50));
}

/* A point halfway between two float32 has at most 113 significant digits.  So 120 digits, and a
 * mark for any that follow, compare with each such point as the whole number does.  For doubles the
 * numbers are 767 and 772. */
#define EXACT_DIGITS 120
#define EXACT_DIGITS_DOUBLE 772
#define EXACT_TEXT (EXACT_DIGITS_DOUBLE + 16)

/* Writes the number, without its sign, as digits, 'e' and exponent. */
static void plain_text(char out[EXACT_TEXT], const struct decimal *in, size_t max)
{
    int64_t exponent;
    bool rest;
    size_t length = significant_digits(out, max, &exponent, &rest, in);
    if (length == 0 || rest)
        out[length++] = rest ? '1' : '0';
    exponent -= rest;
    if (exponent > 9999 || exponent < -9999) /* far out of range with any digits */
        exponent = exponent > 0 ? 9999 : -9999;
    snprintf(out + length, EXACT_TEXT - length, "e%d", (int)exponent);
}

static __attribute__((noinline)) float read_exactly(const struct decimal *in)
{
    char text[EXACT_TEXT];
    plain_text(text, in, EXACT_DIGITS);
    return strtof(text, NULL);
}

/* Truncates a number to its first WHOLE_DIGITS significant digits. */
static __attribute__((noinline)) void truncate_digits(struct decimal *number)
{
    char digits[WHOLE_DIGITS];
    bool rest;
    size_t count = significant_digits(digits, WHOLE_DIGITS, &number->exponent, &rest, number);
    number->whole = 0;
    for (size_t i = 0; i < count; i++)
        number->whole = number->whole * 10 + (uint64_t)(digits[i] - '0');
}

bool srv_number_read(float *out, const char *text, const char *limit, const char **end)
{
    struct decimal number, first;
    *end = scan(&number, text, limit);
    if (!number.valid)
        return false;
    first = number;
    if (number.count > WHOLE_DIGITS)
        truncate_digits(&first);
    *out = 0;
    if (first.whole != 0 && !round_scaled(out, first.whole, first.exponent))
        *out = read_exactly(&number);
    *out = number.negative ? -*out : *out;
    return true;
}

/* The first 16 digits of a fraction as an integer, padded with zeros; *full is set where there are
 * 16 or more.  Returns the byte after the last digit; NULL where there are none, or more than
 * 23. */
static INLINE const char *read_fraction(uint64_t *out, bool *full, const char *text)
{
    uint64_t upper = load(text) ^ REPEAT8('0'), lower = load(text + 8) ^ REPEAT8('0');
    uint64_t after_upper = not_digits(upper), after_lower = not_digits(lower);
    *full = (after_upper | after_lower) == 0;
    if (*full) {
        uint64_t after = not_digits(load(text + 16) ^ REPEAT8('0'));
        *out = join8(upper) * 100000000 + join8(lower);
        return after == 0 ? NULL : text + 16 + bytes_before(after);
    }
    /* Which half the digits end in cannot be predicted, so nothing here branches on it. */
    uint64_t all = -(uint64_t)(after_upper == 0); /* ones where the upper eight are all digits */
    unsigned count = bytes_before(after_upper | (after_lower & all)) + (8 & (unsigned)all);
    upper &= digits_before(after_upper);
    lower &= digits_before(after_lower) & all;
    *out = join8(upper) * 100000000 + join8(lower);
    return count == 0 ? NULL : text + count;
}

#define PLAIN_BYTES 32 /* bytes: more than read_plain reads */

/* Reads the form of almost all numbers of tensors: one to three digits, and possibly a fraction
 * that read_fraction takes.  Returns the comma that follows; NULL where the number has another form
 * or its rounding is undecided.
 *
 * The value is w * 10^-16 for any number of digits, with w < 2^63.  Digits left out add less than
 * 1/w <= 2^-42 of it, and the error of rounding is less than 2^-50 of it, as in round_scaled. */
static INLINE const char *read_plain(float *out, const char *text)
{
    static const double scales[2][2] = {{1e-16 * (1 - 0x1p-41), 1e-16 * (1 + 0x1p-41)},
                                        {-1e-16 * (1 - 0x1p-41), -1e-16 * (1 + 0x1p-41)}};
    uint64_t digit, fraction;
    bool full, negative = *text == '-';
    text += negative;
    uint64_t w = (unsigned char)(*text++ - '0');
    if (w > 9)
        return NULL;
    for (; (digit = (unsigned char)(*text - '0')) <= 9; text++) {
        if (w == 0 || w > 91) /* no leading zero; w stays below 920 */
            return NULL;
        w = w * 10 + digit;
    }
    if (*text == ',') {
        *out = negative ? -(float)(int)w : (float)(int)w;
        return text;
    }
    if (*text != '.' || (text = read_fraction(&fraction, &full, text + 1)) == NULL)
        return NULL;
    w = w * UINT64_C(10000000000000000) + fraction;
    if (*text != ',' || (full && w < UINT64_C(1) << 42))
        return NULL;
    double value = (double)(int64_t)w;
    bool decided = round_between(out, value * scales[negative][0], value * scales[negative][1]);
    return decided ? text : NULL;
}

/* Reads a number of any other form.  Returns the byte after a finite number, or NULL. */
static __attribute__((noinline)) const char *read_other(float *out, const char *text,
                                                        const char *limit)
{
    const char *end;
    bool finite = srv_number_read(out, text, limit, &end) && isfinite(*out);
    return finite && end < limit ? end : NULL;
}

size_t srv_numbers_read(float *out, size_t max, const char **text, const char *limit)
{
    const char *at = *text;
    size_t count = 0;
    for (; count < max; count++) {
        const char *end = limit - at >= PLAIN_BYTES ? read_plain(&out[count], at) : NULL;
        if (end == NULL)
            end = read_other(&out[count], at, limit);
        if (end == NULL || *end != ',')
            break;
        at = end + 1;
        while (at < limit && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
            at++;
    }
    *text = at;
    return count;
}

bool srv_number_read_double(double *out, const char *text, const char *limit, const char **end)
{
    struct decimal number;
    char plain[EXACT_TEXT];
    *end = scan(&number, text, limit);
    if (!number.valid)
        return false;
    plain_text(plain, &number, EXACT_DIGITS_DOUBLE);
    *out = strtod(plain, NULL);
    if (number.negative)
        *out = -*out;
    return true;
}

bool srv_number_skip(const char *text, const char *limit, const char **end)
{
    struct decimal number;
    *end = scan(&number, text, limit);
    return number.valid;
}

bool srv_unsigned_read(uint64_t *out, const char *text, size_t length)
{
    *out = 0;
    for (const char *at = text; at < text + length; at++) {
        unsigned digit = (unsigned char)(*at - '0');
        if (digit > 9 || __builtin_mul_overflow(*out, 10u, out) ||
            __builtin_add_overflow(*out, digit, out))
            return false;
    }
    return length > 0;
}
