/* fuzz.h: what fuzzing targets have in common.
 *
 * A target is one file that defines LLVMFuzzerTestOneInput: libFuzzer calls it with input after
 * input (make fuzz), replay.c with inputs from files (make fuzz-coverage).  The target hands bytes
 * to a parser as the daemon would, in memory of exactly their size so that AddressSanitizer sees a
 * byte read beyond, and checks what the parser's header promises. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A broken promise is a finding, as a crash is one. */
#define FUZZ_EXPECT(promise)                                                      \
    do {                                                                          \
        if (!(promise)) {                                                         \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #promise); \
            abort();                                                              \
        }                                                                         \
    } while (0)

/* Input, used up from its beginning. */
struct fuzz_input {
    const uint8_t *at;
    size_t left;
};

/* Returns the next byte; the next two as a number; 0 where there is none. */
static inline unsigned fuzz_byte(struct fuzz_input *in)
{
    if (in->left == 0)
        return 0;
    in->left--;
    return *in->at++;
}

static inline size_t fuzz_number(struct fuzz_input *in)
{
    size_t high = fuzz_byte(in);
    return high << 8 | fuzz_byte(in);
}

/* Returns a copy of the next `count` bytes, or of as many as are left, in memory of exactly that
 * size; the caller frees it. */
static inline char *fuzz_copy(size_t *length, struct fuzz_input *in, size_t count)
{
    *length = count < in->left ? count : in->left;
    char *out = malloc(*length > 0 ? *length : 1);
    FUZZ_EXPECT(out != NULL);
    memcpy(out, in->at, *length);
    in->at += *length;
    in->left -= *length;
    return out;
}

/* fuzz_copy with a NUL after the bytes. */
static inline char *fuzz_text(size_t *length, struct fuzz_input *in, size_t count)
{
    char *bytes = fuzz_copy(length, in, count), *out = malloc(*length + 1);
    FUZZ_EXPECT(out != NULL);
    memcpy(out, bytes, *length);
    out[*length] = '\0';
    free(bytes);
    return out;
}

#endif
