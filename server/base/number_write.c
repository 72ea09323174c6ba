/* number_write.c: float32 and integers to decimal text.
 *
 * A float is written as the shortest of the decimals that round to it, and of several as the
 * closest.  The float's exponent gives the largest power of ten of which a multiple surely rounds
 * to it; of the next power at most one multiple does (Schubfach: Giulietti 2020, "The Schubfach way
 * to render doubles").  One product with a number from a table finds both. */
#include <endian.h>
#include <string.h>

#include "base/number.h"
#include "base/number_tables.h"

typedef unsigned __int128 wide;

/* On the path that almost all numbers take: each is written in some 45 cycles. */
#define INLINE inline __attribute__((always_inline))
#define REPEAT8(byte) (UINT64_C(0x0101010101010101) * (byte))

/* digits * 10^exponent */
struct shortest {
    uint32_t digits; /* below 2 * 10^8 */
    int exponent;
};

/* Numbers from here on are in units of 10^p / 2^64, where 10^p is the smallest power of ten above
 * the distance 2^q between floats.  Products with the table are too large by less than 2^24.  For
 * every float, and every point halfway between two, the true distance to a multiple of a twentieth
 * of 10^p is zero or larger than 2^27 (found by trying all of them): a distance below 2^26 is
 * zero. */
#define SLACK (UINT64_C(1) << 26)
#define HALF (UINT64_C(1) << 63)

/* floor(log10 2^q) */
static int log10_of_power(int q) { return (q * 1262611) >> 22; }

/* The shortest decimal, in tenths of 10^p, that lies less than the given distances below or above
 * the number product / 2^64.  The result is a multiple of 10^p where there is one (there cannot be
 * two), or else the nearest tenth: the upper one where the number is `half` or more above the lower
 * one, in units of a tenth / 2^64.  Ties go to even tenths.  No outcome can be predicted, so
 * everything is computed and nothing branches. */
static INLINE uint32_t shorten(wide product, uint64_t reach_below, uint64_t reach_above,
                               uint64_t half)
{
    uint32_t tens = (uint32_t)(product >> 64);
    uint64_t below = (uint64_t)product, above = ~below;
    uint32_t tens_below = below < reach_below, tens_above = above < reach_above;
    uint64_t tenths = (below >> 4) * 10; /* four bits before the point, 60 after it */
    uint32_t ones = (uint32_t)(tenths >> 60);
    ones += tenths << 4 >= half + 10 * SLACK - 20 * SLACK * (ones & 1);
    uint32_t round = -(uint32_t)(tens_below | tens_above); /* all ones where it is true */
    return 10 * tens + (ones & ~round) + 10 * tens_above;
}

/* For c * 2^q.  A decimal less than halfway to the next float on either side reads back as it, and,
 * where c is even, so does one exactly halfway. */
static INLINE struct shortest shortest_between(uint32_t c, int q)
{
    uint64_t step = srv_steps[q - SRV_STEP_MIN];
    uint64_t reach = step / 2 + SLACK - 2 * SLACK * (c & 1);
    return (struct shortest){shorten((wide)step * c, reach, reach, HALF), log10_of_power(q)};
}

/* For 2^23 * 2^q: the next smaller float is only 2^(q-1) away.  Where 2^q is less than 4/3 tenths,
 * no tenth may be near enough: then the units are ten times smaller. */
static struct shortest shortest_of_power(int q)
{
    uint64_t step = srv_steps[q - SRV_STEP_MIN];
    uint32_t fine = step < UINT64_MAX / 15 * 2 ? 10 : 1;
    uint64_t below = fine * (step / 4) + SLACK, above = fine * (step / 2) + SLACK;
    uint64_t half = below < HALF / 10 ? 10 * below : HALF;
    return (struct shortest){shorten((wide)step * (fine << 23), below, above, half),
                             log10_of_power(q) - (fine > 1)};
}

/* For rare floats: powers of two, denormals, 0, and infinities and NaN, which have no digits. */
static __attribute__((noinline)) struct shortest shortest_of_rare(uint32_t exponent,
                                                                  uint32_t fraction)
{
    if (exponent == 255 || (exponent | fraction) == 0)
        return (struct shortest){0, 0};
    if (exponent <= 1)
        return shortest_between(fraction | exponent << 23, SRV_STEP_MIN);
    return shortest_of_power((int)exponent - 150);
}

static INLINE struct shortest shortest_of(uint32_t bits)
{
    uint32_t fraction = bits & 0x7FFFFF, exponent = bits >> 23 & 0xFF;
    if (fraction == 0 || exponent == 0 || exponent == 255)
        return shortest_of_rare(exponent, fraction);
    return shortest_between(fraction | 0x800000, (int)exponent - 150);
}

/* Eight digits of x < 10^8, one in each byte, the first in the lowest.  x is split into fours,
 * pairs and single digits, all of a kind at once: x / d + (x % d << n) is (x << n) - x / d * ((d <<
 * n) - 1). */
static INLINE uint64_t split8(uint32_t x)
{
    uint64_t fours = ((uint64_t)x << 32) - x / 10000 * ((UINT64_C(10000) << 32) - 1);
    uint64_t hundreds = (fours * 10486) >> 20 & UINT64_C(0x0000007F0000007F);
    uint64_t pairs = (fours << 16) - hundreds * ((100 << 16) - 1);
    uint64_t tens = (pairs * 103) >> 10 & UINT64_C(0x000F000F000F000F);
    return (pairs << 8) - tens * ((10 << 8) - 1);
}

#define HUNDRED_MILLION 100000000
#define FLOAT_INFINITY 0x7F800000u

/* The last eight digits, one in each byte. */
static INLINE uint64_t last_eight(uint32_t digits)
{
    uint32_t less = digits - HUNDRED_MILLION; /* apart, so that the compiler makes no branch */
    return split8(digits >= HUNDRED_MILLION ? less : digits);
}

static void store(char *out, uint64_t bytes)
{
    bytes = htole64(bytes);
    memcpy(out, &bytes, 8);
}

/* The number of digits, of eight, up to the last that is not 0. */
static INLINE unsigned significant(uint64_t digits)
{
    return digits == 0 ? 0 : (63 - (unsigned)__builtin_clzll(digits)) / 8 + 1;
}

/* 123.45: exponent -8 to -1.  x.digits are nine, with at most two leading zeros; the first `whole`
 * of them are before the point, and leading zeros among those are left out, except that of 0.5. */
static INLINE char *write_large(char *out, struct shortest x, uint64_t others)
{
    unsigned whole = 9 + (unsigned)x.exponent;
    uint64_t first = x.digits >= HUNDRED_MILLION, fraction = others >> 8 * (whole - 1);
    unsigned zeros = (x.digits < HUNDRED_MILLION) + (x.digits < HUNDRED_MILLION / 10);
    zeros = whole == 1 ? 0 : zeros; /* two digits before the point: the number is 1 or more */
    store(out, ((others << 8 | first) + REPEAT8('0')) >> 8 * zeros);
    out += whole - zeros;
    *out = '.';
    store(out + 1, fraction + REPEAT8('0'));
    return fraction == 0 ? out : out + 1 + significant(fraction);
}

/* 0.0012345: exponent -12 to -9 */
static INLINE char *write_small(char *out, struct shortest x, uint64_t others)
{
    memcpy(out, "0.000000", 8);
    out += -7 - x.exponent; /* the place of the first of nine digits */
    *out = (char)('0' + (x.digits >= HUNDRED_MILLION));
    store(out + 1, others + REPEAT8('0'));
    return out + 1 + significant(others);
}

/* 1.2345e-10 */
static char *write_scientific(char *out, struct shortest x, uint64_t others)
{
    uint64_t first = x.digits >= HUNDRED_MILLION;
    for (x.exponent += 8; first == 0; x.exponent--) {
        first = others & 0xF;
        others >>= 8;
    }
    unsigned size = (unsigned)(x.exponent < 0 ? -x.exponent : x.exponent);
    out[0] = (char)('0' + first);
    out[1] = '.';
    store(out + 2, others + REPEAT8('0'));
    out += others == 0 ? 1 : 2 + significant(others);
    *out++ = 'e';
    if (x.exponent < 0)
        *out++ = '-';
    return out + srv_unsigned_write(out, size, 1);
}

/* Numbers from 10^9 on, and below 0.0001: 1.2345e-10; whole numbers above 2^23; 0. */
static __attribute__((noinline)) char *write_far(char *out, uint32_t bits, struct shortest x,
                                                 uint64_t others)
{
    if (x.digits == 0) { /* a reader with an integer type would lose the sign of "-0" */
        memcpy(out, "0.0", 3);
        return out + (bits >> 31 != 0 ? 3 : 1);
    }
    if (x.exponent == 0 || (x.exponent == 1 && x.digits < HUNDRED_MILLION))
        return out + srv_unsigned_write(out, (uint64_t)x.digits * (x.exponent == 0 ? 1 : 10), 1);
    return write_scientific(out, x, others);
}

/* Writes the finite float with these bits, whose shortest decimal is x. */
static INLINE char *write_finite(char *out, uint32_t bits, struct shortest x, uint64_t others)
{
    *out = '-';
    out += bits >> 31;
    if (x.exponent < 0 && x.exponent >= -8)
        return write_large(out, x, others);
    if (x.exponent < 0 && x.exponent + (x.digits >= HUNDRED_MILLION) > -12)
        return write_small(out, x, others);
    return write_far(out, bits, x, others);
}

static INLINE uint32_t bits_of(const float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    return bits;
}

#define BLOCK 32

/* Three passes over a few numbers: one number is a long chain of dependent operations, of which a
 * core overlaps two at most; of the short steps of a pass it overlaps many. */
static INLINE char *write_block(char *out, const float *x, size_t n)
{
    struct shortest s[BLOCK];
    uint64_t others[BLOCK];
    for (size_t i = 0; i < n; i++)
        s[i] = shortest_of(bits_of(&x[i]));
    for (size_t i = 0; i < n; i++)
        others[i] = last_eight(s[i].digits);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = bits_of(&x[i]);
        if ((bits & FLOAT_INFINITY) == FLOAT_INFINITY)
            out = (char *)memcpy(out, "null", 4) + 4;
        else
            out = write_finite(out, bits, s[i], others[i]);
        *out++ = ',';
    }
    return out;
}

size_t srv_numbers_write(char *out, const float *x, size_t n)
{
    char *at = out;
    for (size_t i = 0; i < n; i += BLOCK)
        at = write_block(at, x + i, n - i < BLOCK ? n - i : BLOCK);
    return (size_t)(at - out);
}

size_t srv_unsigned_write(char *out, uint64_t n, size_t width)
{
    size_t count = 1;
    if (n < 10 && width <= 1) { /* layers, short dimensions */
        *out = (char)('0' + n);
        return 1;
    }
    for (uint64_t rest = n / 10; rest > 0; rest /= 10)
        count++;
    count = count > width ? count : width;
    for (size_t i = count; i-- > 0; n /= 10)
        out[i] = (char)('0' + n % 10);
    return count;
}
