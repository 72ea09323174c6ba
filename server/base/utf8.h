/* utf8.h: reading and writing characters of UTF-8. */
#ifndef SRV_UTF8_H
#define SRV_UTF8_H

#include <stddef.h>

/* The number of bytes, 1 to 4, of the character that begins at `at`; 0 where it is not well formed
 * (RFC 3629: shortest forms only, no surrogates, nothing above U+10FFFF) or extends beyond
 * `end`. */
size_t srv_utf8_length(const char *at, const char *end);

/* Writes a code point up to U+10FFFF; returns the number of bytes. */
size_t srv_utf8_write(char out[4], unsigned long code_point);

#endif
