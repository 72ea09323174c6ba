/* number.c: decimal text to float32 and back, exactly.
 *
 * Reading.  The digits become w * 10^q with w below 2^64, eight digits at a time.  The product of w
 * and a 64-bit power of ten, rounded up, is above the true value by less than one unit of its upper
 * word.  That decides the rounding to float32, unless the product stands right on a point halfway
 * between two floats (once in 2^38 numbers, and for numbers that are such a point); only then does
 * strtof decide, on text that this file has brought into a form without locale.  This is Eisel and
 * Lemire's method (Lemire 2021, "Number parsing at a gigabyte per second") with a word less, which
 * float32 leaves room for.
 *
 * Writing.  Schubfach (Giulietti 2020, "The Schubfach way to render doubles") for float32: of the
 * decimals inside the interval that rounds to x, the shortest, and of those the closest. */
#include "number.h"

#include <endian.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number_tables.h"

typedef unsigned __int128 wide;

/* For the path that almost all numbers take: a number is read in some 30 cycles. */
#define INLINE inline __attribute__((always_inline))
#define REPEAT8(byte) (UINT64_C(0x0101010101010101) * (byte))
#define WHOLE_DIGITS 19 /* decimal digits that always fit 64 bits */

/* floor(log2 10^q), for |q| < 350 */
static int log2_of_power(int q) { return (217706 * q) >> 16; }

static uint64_t power_of_ten(int q) { return srv_powers[q - SRV_POWER_MIN]; }

/* ---- Digits to an integer -------------------------------------------------------------------- */

/* A number taken apart: its value is `whole` * 10^exponent where it has at most WHOLE_DIGITS
 * significant digits; with more, `whole` has wrapped. */
struct decimal {
    bool valid, negative;
    uint64_t whole;
    int64_t exponent;                /* decimal exponent of the last digit */
    size_t count;                    /* digits, a single 0 before the point not counted */
    const char *digits, *digits_end; /* first digit, behind the last; a point may lie between */
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

/* Eight bytes as they stand in memory, the first in the lowest byte; zeros beyond the limit. */
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

/* Passes over digits and appends them to *whole, which may wrap. */
static INLINE const char *read_digits(uint64_t *whole, const char *at, const char *limit)
{
    static const uint32_t scale[8] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000};
    for (;;) {
        uint64_t digits = load8(at, limit) ^ REPEAT8('0');
        uint64_t others = ((digits + REPEAT8(0x80 - 10)) | digits) & REPEAT8(0x80);
        if (others != 0) {
            unsigned count =
                (unsigned)__builtin_ctzll(others) / 8; /* digits before the first other */
            *whole = *whole * scale[count] + join8(digits << (56 - 8 * count) << 8);
            return at + count;
        }
        *whole = *whole * 100000000 + join8(digits);
        at += 8;
    }
}

/* Reads the exponent behind an 'e'.  It counts no further than texts can be long, so that it and
 * the places behind the point cancel as they should in "0.000...1e1000". */
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

/* Takes the number at `text` apart.  Returns the byte behind it, or the one that is at fault. */
static INLINE const char *scan(struct decimal *out, const char *text, const char *limit)
{
    const char *at = text;
    *out = (struct decimal){.negative = at < limit && *at == '-'};
    at += out->negative;
    out->digits = at;
    if (!is_digit(at, limit))
        return at;
    out->whole = (uint64_t)(*at++ - '0');
    if (is_digit(at, limit) && out->whole != 0) /* in the order that is easier to foresee */
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
 * that of the last one copied; *rest tells whether a digit other than 0 was left out. */
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

#define FLOAT_INFINITY 0x7F800000u

/* `bits` shifted down by n, at least 1, with the last bit set where a one was lost. */
static uint64_t shift_down(uint64_t bits, int n)
{
    return n > 63 ? 1 : bits >> n | (bits << (64 - n) != 0);
}

/* Rounds w * 10^q, w > 0, to the bits of a float32; false where the product cannot decide.
 *
 * With w and the power shifted to begin with a one, so does the product's upper word, in bit 63 or
 * 62.  From bit 63 on it is the value, or above it by less than two units.  The upper 24 bits are
 * kept and one for rounding; for denormals they begin with zeros.  Where the others are all zero
 * behind a one, the value may be a half, or a little less: undecided.  Behind a zero both round the
 * same way. */
static INLINE bool round_product(uint32_t *bits, uint64_t w, int64_t q)
{
    *bits = q < 0 ? 0 : FLOAT_INFINITY;
    if (q < SRV_POWER_MIN || q > 38)
        return true;
    int zeros = __builtin_clzll(w);
    wide product = (wide)(w << zeros) * power_of_ten((int)q);
    uint64_t high = (uint64_t)(product >> 64);
    uint64_t low_half = ~high >> 63; /* 1 where bit 62 is the first */
    high += high & -low_half;
    int exponent = 127 + 64 + log2_of_power((int)q) - zeros - (int)low_half; /* with the bias */
    if (exponent < 1) {
        high = shift_down(high, 1 - exponent);
        exponent = 1;
    }
    if ((high & ((UINT64_C(1) << 40) - 1)) == UINT64_C(1) << 39)
        return false;
    uint64_t rounded = ((uint64_t)(exponent - 1) << 23) + (((high >> 39) + 1) >> 1); /* may carry */
    *bits = rounded < FLOAT_INFINITY ? (uint32_t)rounded : FLOAT_INFINITY;
    return true;
}

/* A half point between two float32 has at most 113 significant digits: with 120 and a mark for any
 * that follow, the text compares with each of them as the whole number does.  For doubles it is 767
 * and 772. */
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
    if (exponent > 9999 || exponent < -9999) /* far out of range, whatever the digits */
        exponent = exponent > 0 ? 9999 : -9999;
    snprintf(out + length, EXACT_TEXT - length, "e%d", (int)exponent);
}

static uint32_t read_exactly(const struct decimal *in)
{
    char text[EXACT_TEXT];
    uint32_t bits;
    plain_text(text, in, EXACT_DIGITS);
    float value = strtof(text, NULL);
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* More than WHOLE_DIGITS digits.  Where the first ones, as they are and with one added, round to
 * the same float, so does what lies between. */
static uint32_t read_long(const struct decimal *in)
{
    char digits[WHOLE_DIGITS];
    int64_t exponent;
    bool rest;
    uint64_t whole = 0;
    uint32_t below, above;
    size_t count = significant_digits(digits, WHOLE_DIGITS, &exponent, &rest, in);
    for (size_t i = 0; i < count; i++)
        whole = whole * 10 + (uint64_t)(digits[i] - '0');
    if (whole == 0)
        return 0;
    bool decided = round_product(&below, whole, exponent);
    if (decided && rest)
        decided = round_product(&above, whole + 1, exponent) && above == below;
    return decided ? below : read_exactly(in);
}

/* What the quick path of srv_number_read leaves: it takes the number apart once more, so that the
 * quick path can keep its parts in registers. */
static __attribute__((noinline)) uint32_t read_slowly(const char *text, const char *limit)
{
    struct decimal number;
    scan(&number, text, limit);
    return number.count > WHOLE_DIGITS ? read_long(&number) : read_exactly(&number);
}

bool srv_number_read(float *out, const char *text, const char *limit, const char **end)
{
    struct decimal number;
    uint32_t bits = 0;
    *end = scan(&number, text, limit);
    if (!number.valid)
        return false;
    if (number.count > WHOLE_DIGITS ||
        (number.whole != 0 && !round_product(&bits, number.whole, number.exponent)))
        bits = read_slowly(text, limit);
    bits |= (uint32_t)number.negative << 31;
    memcpy(out, &bits, sizeof bits);
    return true;
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

/* ---- Writing --------------------------------------------------------------------------------- */

/* digits * 10^exponent */
struct shortest {
    uint32_t digits; /* at most 9 of them */
    int exponent;
};

/* The whole part of c * power / 2^64, with its lowest bit set where there is a fraction: enough to
 * compare with multiples of 2.  Powers are too large by less than 1, so a fraction below 2^-32
 * comes from that; the true fractions of float32's products are all larger. */
static INLINE uint32_t scaled(uint32_t c, uint64_t power)
{
    wide product = (wide)c * power;
    return (uint32_t)(product >> 64) | ((uint32_t)((uint64_t)product >> 32) != 0);
}

/* The shortest decimal that rounds to c * 2^q, c > 0.  `uneven`: c is a power of two with the next
 * smaller float at half the distance of the next larger one.
 *
 * In units of 10^k / 4, where 10^k is the largest power not above the interval's width: `low` and
 * `high` bound the interval, `middle` is the float.  Candidates are the multiples of 10^(k+1)
 * around it, of which at most one is inside, and else those of 10^k. */
static INLINE struct shortest shorten(uint32_t c, int q, bool uneven)
{
    int k = (q * 1262611 - (uneven ? 524031 : 0)) >> 22; /* floor(log10(2^q)), or of 3/4 2^q */
    uint64_t power = power_of_ten(-k);
    uint32_t unit = 1u << (q + log2_of_power(-k) + 1); /* a quarter of 2^q */
    uint32_t open = c & 1; /* ties go to even floats: an odd one's interval excludes its ends */
    uint32_t low = scaled((4 * c - 2 + uneven) * unit, power) + open;
    uint32_t middle = scaled(4 * c * unit, power);
    uint32_t high = scaled((4 * c + 2) * unit, power) - open;
    uint32_t tens = middle / 40, ones = middle / 4;
    uint32_t tens_below = low <= 40 * tens, tens_above = 40 * tens + 40 <= high;
    uint32_t ones_below = low <= 4 * ones, ones_above = 4 * ones + 4 <= high;
    /* Of two candidates inside, or of none, the closer one; the even one where both are as close.
     * Nothing here can be foreseen, so all of it is computed and none of it branched on. */
    uint32_t alike = ones_below ^ ones_above ^ 1;
    uint32_t closer = middle + (ones & 1) > 4 * ones + 2;
    uint32_t shorter = tens_below ^ tens_above;
    uint32_t long_form = ones + ((alike & closer) | (~alike & ones_above));
    uint32_t short_form = tens + tens_above;
    return (struct shortest){long_form + ((short_form - long_form) & -shorter), k + (int)shorter};
}

/* Eight digits of x < 10^8, one in each byte, the first in the lowest: the reverse of join8. */
static INLINE uint64_t split8(uint32_t x)
{
    uint64_t fours = x / 10000 | (uint64_t)(x % 10000) << 32;
    uint64_t hundreds = (fours * 10486) >> 20 & UINT64_C(0x0000007F0000007F);
    uint64_t pairs = hundreds | (fours - 100 * hundreds) << 16;
    uint64_t tens = (pairs * 103) >> 10 & UINT64_C(0x000F000F000F000F);
    return tens | (pairs - 10 * tens) << 8;
}

/* Nine digits, the first not 0, as text. */
struct text {
    char first;
    uint64_t others; /* eight characters, the next in the lowest byte */
    int length;      /* without zeros at the end */
    int exponent;    /* of the first digit */
};

static INLINE struct text spell(struct shortest in)
{
    static const uint32_t scale[10] = {1,      10,      100,      1000,      10000,
                                       100000, 1000000, 10000000, 100000000, 1000000000};
    int guess = ((32 - __builtin_clz(in.digits)) * 1233) >> 12; /* floor(log10), or one more */
    int count = guess + (in.digits >= scale[guess]);
    uint32_t nine = in.digits * scale[9 - count];
    uint64_t others = split8(nine % 100000000);
    return (struct text){
        .first = (char)('0' + nine / 100000000),
        .others = others + REPEAT8('0'),
        .length = others == 0 ? 1 : 9 - __builtin_clzll(others) / 8,
        .exponent = in.exponent + count - 1,
    };
}

static void store8(char *out, uint64_t bytes)
{
    bytes = htole64(bytes);
    memcpy(out, &bytes, 8);
}

/* 123.45 or 12300: exponent 0 to 8 */
static size_t write_large(char *out, const struct text *text)
{
    out[0] = text->first;
    store8(out + 1, text->others);
    int whole = text->exponent + 1;
    if (text->length <= whole)
        return (size_t)whole;
    out[whole] = '.';
    store8(out + whole + 1, text->others >> 8 * text->exponent);
    return (size_t)text->length + 1;
}

/* 0.0012345: exponent -4 to -1 */
static size_t write_small(char *out, const struct text *text)
{
    int zeros = 1 - text->exponent; /* and the point */
    memcpy(out, "0.000000", 8);
    out[zeros] = text->first;
    store8(out + zeros + 1, text->others);
    return (size_t)(zeros + text->length);
}

/* 1.2345e-10 */
static size_t write_scientific(char *out, const struct text *text)
{
    int at = text->length == 1 ? 1 : text->length + 1;
    out[0] = text->first;
    out[1] = '.';
    store8(out + 2, text->others);
    out[at++] = 'e';
    if (text->exponent < 0)
        out[at++] = '-';
    int size = text->exponent < 0 ? -text->exponent : text->exponent;
    if (size >= 10)
        out[at++] = (char)('0' + size / 10);
    out[at++] = (char)('0' + size % 10);
    return (size_t)at;
}

size_t srv_number_write(char *out, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    size_t sign = bits >> 31;
    uint32_t fraction = bits & 0x7FFFFF;
    int exponent = (int)(bits >> 23 & 0xFF);
    bool normal = exponent > 0;
    if (!normal && fraction == 0) {
        memcpy(out, sign ? "-0.0" : "0   ", 4);
        return sign ? 4 : 1;
    }
    uint32_t c = fraction | (uint32_t)normal << 23;
    int q = exponent - 149 - normal;
    struct text text = spell(shorten(c, q, fraction == 0 && exponent > 1));
    out[0] = '-';
    out += sign;
    if (text.exponent >= 0 && text.exponent <= 8)
        return sign + write_large(out, &text);
    if (text.exponent < 0 && text.exponent >= -4)
        return sign + write_small(out, &text);
    return sign + write_scientific(out, &text);
}

size_t srv_unsigned_write(char *out, uint64_t n, size_t width)
{
    char digits[SRV_UNSIGNED_MAX];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + n % 10);
        n /= 10;
    } while (n > 0 || sizeof digits - at < width);
    memcpy(out, digits + at, sizeof digits - at);
    return sizeof digits - at;
}
