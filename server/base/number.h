/* number.h: numbers as JSON text, both ways, correctly rounded.
 *
 * The grammar is RFC 8259's: no leading zeros, no '+', digits on both sides of a point.  Nothing
 * here depends on the locale.  Reading and writing expect the default rounding, to nearest. */
#ifndef SRV_NUMBER_H
#define SRV_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The number that begins at `text`, correctly rounded to float32.  *end is set behind it.  False
 * where the text is not a JSON number, with *end at the first byte that cannot be; *out is infinite
 * where the number is out of range.  What follows the number is the caller's to judge. */
bool srv_number_read(float *out, const char *text, const char *limit, const char **end);

/* Reads the numbers of a list, at most `max`, as long as each is finite and has a comma right
 * behind it; white space may follow the comma.  Returns how many; *text is moved to what comes
 * next. */
size_t srv_numbers_read(float *out, size_t max, const char **text, const char *limit);

/* A number as srv_number_read takes it, as a double. */
bool srv_number_read_double(double *out, const char *text, const char *limit, const char **end);

/* Passes over a number, checking its syntax: sets *end as srv_number_read does. */
bool srv_number_skip(const char *text, const char *limit, const char **end);

/* The shortest decimal text that reads back as x (finite), and of those the one closest to x: at
 * most 9 significant digits.  `out` must have room for SRV_NUMBER_MAX characters, all of which may
 * be written to; no NUL is appended.  Returns the text's length.  Zero is "0" or "-0.0", which
 * readers with an integer type keep the sign of. */
#define SRV_NUMBER_MAX 24
size_t srv_number_write(char *out, float x);

/* Writes n numbers, each with a comma behind it, as srv_number_write does; "null" for what is not
 * finite.  `out` must have room for n * (SRV_NUMBER_MAX + 1) characters.  Returns the text's
 * length. */
size_t srv_numbers_write(char *out, const float *x, size_t n);

/* The decimal digits of n, with zeros in front up to `width` digits; at most SRV_UNSIGNED_MAX
 * characters and no NUL; returns their number.  Where requests are read
 * and replies and log lines made, printf is not called: OpenBLAS brings a library that hooks into
 * it and sends every call through its slow path. */
#define SRV_UNSIGNED_MAX 20
size_t srv_unsigned_write(char *out, uint64_t n, size_t width);

#endif
