/* number.h: numbers as JSON text, both ways, correctly rounded.
 *
 * The grammar is RFC 8259's: no leading zeros, no '+', digits on both sides of a point.  No
 * function depends on the locale.  Reading and writing expect the default rounding, to nearest. */
#ifndef SRV_NUMBER_H
#define SRV_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads the number that begins at `text`, correctly rounded to float32, and sets *end to the byte
 * after it, which the caller judges.  *out is infinite where the number is out of range.  False
 * where the text is not a JSON number: *end is then the first wrong byte. */
bool srv_number_read(float *out, const char *text, const char *limit, const char **end);

/* Reads up to `max` numbers of a list, as long as each is finite and directly followed by a comma;
 * white space may follow the comma.  Returns how many were read and moves *text to the byte after
 * them. */
size_t srv_numbers_read(float *out, size_t max, const char **text, const char *limit);

/* Reads a number as srv_number_read does, as a double. */
bool srv_number_read_double(double *out, const char *text, const char *limit, const char **end);

/* Reads `length` decimal digits and nothing else; false also where the number does not fit. */
bool srv_unsigned_read(uint64_t *out, const char *text, size_t length);

/* Skips a number after checking its syntax; sets *end as srv_number_read does. */
bool srv_number_skip(const char *text, const char *limit, const char **end);

/* Writes of each of n numbers the shortest decimal text that reads back as the number, and of
 * several the closest to it: at most 9 significant digits; "null" for a number that is not finite.
 * A comma follows each.  Zero is "0" or "-0.0", whose sign a reader with an integer type keeps.
 * Returns the text's length.  `out` must have room for n * (SRV_NUMBER_MAX + 1) characters, all of
 * which may be written to; no NUL is appended. */
#define SRV_NUMBER_MAX 24
size_t srv_numbers_write(char *out, const float *x, size_t n);

/* Writes the decimal digits of n, padded with zeros to `width` digits: at most SRV_UNSIGNED_MAX
 * characters and no NUL.  Returns how many.  The paths that read requests and write replies and log
 * lines use this in place of printf: OpenBLAS loads a library (libquadmath) that hooks into printf
 * and sends every call through its slow path. */
#define SRV_UNSIGNED_MAX 20
size_t srv_unsigned_write(char *out, uint64_t n, size_t width);

#endif
