/* utf8.c: UTF-8 by the table of well-formed byte sequences (Unicode 15, table 3-7).
 *
 * The first byte of a character decides its length and the bounds of the second byte, in which
 * overlong forms, surrogates and values above U+10FFFF show; later bytes are 80..BF. */
#include "base/utf8.h"

static const struct sequence {
    unsigned char first, last; /* bounds of the first byte */
    unsigned char low, high;   /* bounds of the second */
    unsigned char length;
} sequences[] = {
    {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3}, {0xE1, 0xEC, 0x80, 0xBF, 3},
    {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3}, {0xF0, 0xF0, 0x90, 0xBF, 4},
    {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4},
};

static const struct sequence *find_sequence(unsigned char first)
{
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++)
        if (first >= sequences[i].first && first <= sequences[i].last)
            return &sequences[i];
    return NULL;
}

size_t srv_utf8_length(const char *at, const char *end)
{
    const unsigned char *bytes = (const unsigned char *)at;
    if (at == end)
        return 0;
    if (bytes[0] < 0x80)
        return 1;
    const struct sequence *s = find_sequence(bytes[0]);
    if (s == NULL || (size_t)(end - at) < s->length || bytes[1] < s->low || bytes[1] > s->high)
        return 0;
    for (size_t i = 2; i < s->length; i++)
        if (bytes[i] < 0x80 || bytes[i] > 0xBF)
            return 0;
    return s->length;
}

size_t srv_utf8_write(char out[4], unsigned long code_point)
{
    static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    if (code_point < 0x80) {
        out[0] = (char)code_point;
        return 1;
    }
    size_t length = code_point < 0x800 ? 2 : code_point < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code_point >>= 6)
        out[i] = (char)(0x80 | (code_point & 0x3F));
    out[0] = (char)(marks[length] | code_point);
    return length;
}
