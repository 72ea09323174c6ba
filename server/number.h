/* number.h: numbers as JSON text, both ways, correctly rounded.
 *
 * The grammar is RFC 8259's: no leading zeros, no '+', digits on both sides of a point.  Nothing
 * here depends on the locale or on the rounding of the platform's own conversions, but for one
 * number in many billions that is left to strtof. */
#ifndef SRV_NUMBER_H
#define SRV_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The number that begins at `text`, correctly rounded to float32.  *end is set behind it.  False
 * where the text is not a JSON number, with *end at the first byte that cannot be; *out is infinite
 * where the number is out of range.  What follows the number is the caller's to judge. */
bool srv_number_read(float *out, const char *text, const char *limit, const char **end);

/* The same, as a double. */
bool srv_number_read_double(double *out, const char *text, const char *limit, const char **end);

/* Passes over a number, checking its syntax: sets *end as srv_number_read does. */
bool srv_number_skip(const char *text, const char *limit, const char **end);

/* The shortest decimal text that reads back as x (finite), and of those the one closest to x: at
 * most 9 significant digits.  `out` must have room for SRV_NUMBER_MAX characters, all of which may
 * be written to; no NUL is appended.  Returns the text's length.  Zero is "0" or "-0.0", which
 * readers with an integer type keep the sign of. */
#define SRV_NUMBER_MAX 24
size_t srv_number_write(char *out, float x);

/* The decimal digits of n, with zeros in front up to `width` digits; at most SRV_UNSIGNED_MAX
 * characters and no NUL; returns their number.  Where replies and log lines are made, printf is
 * not called: OpenBLAS brings a library that hooks into it and sends every call through its slow
 * path. */
#define SRV_UNSIGNED_MAX 20
size_t srv_unsigned_write(char *out, uint64_t n, size_t width);

#endif
