/* gguf_writer.h: small GGUF files, written by tests. */
#ifndef ATTN_TESTS_UNIT_GGUF_WRITER_H
#define ATTN_TESTS_UNIT_GGUF_WRITER_H

#include <stddef.h>

/* Writes a file of version 3 in memory, for free.
 *
 * keys: "key=value key=value ...": an integer (u32), a number with a point (f32), true or false, a
 * word (a string), or a list of digits, [110], of booleans.
 * tensors: "name:8,3 name:4 ...", sizes with the fastest first; F32, all numbers 1. */
void *gguf_write(size_t *size, const char *keys, const char *tensors);

#endif
