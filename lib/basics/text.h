/* text.h: what is done to the text of any file, by library and daemon. */
#ifndef ATTN_LIB_BASICS_TEXT_H
#define ATTN_LIB_BASICS_TEXT_H

#include <stddef.h>
#include <string.h>

/* Removes a byte order mark (UTF-8), which some editors write and which is no part of the text.
 * Returns the length without it. */
static inline size_t attn_text_drop_mark(char *text, size_t length)
{
    static const char mark[] = {'\xEF', '\xBB', '\xBF'};
    if (length < sizeof mark || memcmp(text, mark, sizeof mark) != 0)
        return length;
    memmove(text, text + sizeof mark, length - sizeof mark);
    return length - sizeof mark;
}

/* The number, from 1 on, of a word among words with one blank between them; 0: it is none of
 * them. */
static inline size_t attn_text_word_number(const char *words, const char *word)
{
    for (size_t number = 1; *words != '\0'; number++) {
        const size_t length = strcspn(words, " ");
        if (strlen(word) == length && memcmp(words, word, length) == 0)
            return number;
        words += length + (words[length] == ' ');
    }
    return 0;
}

#endif
