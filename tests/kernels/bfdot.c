/* bfdot.c: arm64's bfdot as its manual defines it, for the bits of products with bf16 weights.
 *
 * For each word: the sum of both products, then that added to the sum so far.  Each addition rounds
 * to odd: towards zero, the last bit set where anything was lost.  Denormal operands count as
 * zeros, denormal results become zeros, what is beyond the largest float an infinity.  FPCR.EBF,
 * which changes that, is 0 in every process that does not set it. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "kernelcheck.h"

/* x, a float in all but its range, as a float's range has it. */
static double in_range(double x)
{
    double size = fabs(x);
    return copysign(size < (double)FLT_MIN ? 0 : size > (double)FLT_MAX ? INFINITY : size, x);
}

/* a + b, rounded to odd; both are floats.  The error of the addition in double, which is exact
 * (Knuth), says which way that has rounded. */
static double add_to_odd(double a, double b)
{
    const uint64_t unit = (uint64_t)1 << 29; /* the last bit of a float within a double */
    double sum = a + b, part = sum - a, error = (a - (sum - part)) + (b - part);
    uint64_t bits;
    if (!isfinite(sum))
        return sum;
    if (error != 0 && (error < 0) != (sum < 0))
        sum = nextafter(sum, 0);
    memcpy(&bits, &sum, sizeof bits);
    if (error != 0 || bits % unit != 0)
        bits = bits / unit * unit | unit;
    memcpy(&sum, &bits, sizeof sum);
    return in_range(sum);
}

double bfdot(double sum, const double x[2], const double w[2])
{
    return add_to_odd(sum, add_to_odd(in_range(x[0] * w[0]), in_range(x[1] * w[1])));
}
