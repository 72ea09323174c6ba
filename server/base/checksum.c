/* checksum.c: four chains of srv_hash_word, whose multiplications overlap. */
#include "base/checksum.h"

#include <string.h>

#include "base/hash.h"

#define WORD sizeof(uint32_t)

static inline uint32_t word_at(const unsigned char *at)
{
    uint32_t word;
    memcpy(&word, at, WORD);
    return word;
}

void srv_checksum_init(struct srv_checksum *sum)
{
    *sum = (struct srv_checksum){.lanes = {1, 2, 3, 4}};
}

static void add_word(struct srv_checksum *sum, const unsigned char *at)
{
    uint64_t *lane = &sum->lanes[sum->words++ % 4];
    *lane = srv_hash_word(*lane, word_at(at));
}

void srv_checksum_add(struct srv_checksum *sum, const void *bytes, size_t size)
{
    const unsigned char *at = bytes, *end = at + size / WORD * WORD;
    while (at < end && sum->words % 4 != 0) {
        add_word(sum, at);
        at += WORD;
    }
    uint64_t a = sum->lanes[0], b = sum->lanes[1], c = sum->lanes[2], d = sum->lanes[3];
    for (; (size_t)(end - at) >= 4 * WORD; at += 4 * WORD) {
        a = srv_hash_word(a, word_at(at));
        b = srv_hash_word(b, word_at(at + WORD));
        c = srv_hash_word(c, word_at(at + 2 * WORD));
        d = srv_hash_word(d, word_at(at + 3 * WORD));
        sum->words += 4;
    }
    *sum = (struct srv_checksum){{a, b, c, d}, sum->words};
    for (; at < end; at += WORD)
        add_word(sum, at);
}

uint64_t srv_checksum_end(const struct srv_checksum *sum)
{
    uint64_t end = sum->words;
    for (size_t i = 0; i < 4; i++)
        end = srv_hash_word(end, sum->lanes[i]);
    return end;
}

uint64_t srv_checksum_of(const void *bytes, size_t size)
{
    struct srv_checksum sum;
    srv_checksum_init(&sum);
    srv_checksum_add(&sum, bytes, size);
    return srv_checksum_end(&sum);
}
