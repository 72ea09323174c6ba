/* numbers.c: a number as text, compared with the C library's reading, which rounds correctly too; a
 * list of numbers; and four bytes as a float, which must be read back from its text. */
#include <math.h>

#include "base/number.h"
#include "fuzz.h"

#define LIST 64

static bool same(double a, double b) { return memcmp(&a, &b, sizeof a) == 0; }

static void read_one(const char *text, size_t length)
{
    float x;
    double d;
    const char *end, *end_double, *end_skip, *limit = text + length;
    bool is_number = srv_number_read(&x, text, limit, &end);
    FUZZ_EXPECT(end >= text && end <= limit);
    FUZZ_EXPECT(srv_number_read_double(&d, text, limit, &end_double) == is_number);
    FUZZ_EXPECT(srv_number_skip(text, limit, &end_skip) == is_number && end_skip == end);
    if (!is_number)
        return;
    char *copy = strndup(text, (size_t)(end - text));
    FUZZ_EXPECT(copy != NULL && end_double == end);
    FUZZ_EXPECT(same((double)strtof(copy, NULL), (double)x) && same(strtod(copy, NULL), d));
    free(copy);
}

static void read_list(const char *text, size_t length)
{
    float out[LIST];
    const char *at = text;
    size_t count = srv_numbers_read(out, LIST, &at, text + length);
    FUZZ_EXPECT(count <= LIST && at >= text && at <= text + length);
    for (size_t i = 0; i < count; i++)
        FUZZ_EXPECT(isfinite(out[i]));
}

static void write_one(const uint8_t *bytes)
{
    float x, again;
    char text[SRV_NUMBER_MAX + 1];
    const char *end;
    memcpy(&x, bytes, sizeof x);
    if (!isfinite(x))
        return;
    size_t length = srv_numbers_write(text, &x, 1) - 1; /* less the comma */
    FUZZ_EXPECT(length < sizeof text && srv_number_read(&again, text, text + length, &end));
    FUZZ_EXPECT(end == text + length && memcmp(&again, &x, sizeof x) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    size_t length;
    char *text = fuzz_copy(&length, &in, in.left);
    read_one(text, length);
    read_list(text, length);
    if (size >= sizeof(float))
        write_one(data);
    free(text);
    return 0;
}
