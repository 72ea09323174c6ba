/* text.c: texts that are gathered and printed as paragraphs and tables. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "family_text/family_text.h"

#define COLUMNS 120  /* of a line, outside tables */
#define MOST_CELLS 8 /* of a row */

static void fail(const char *what, size_t most)
{
    fprintf(stderr, "family_text: %s than %zu\n", what, most);
    exit(1);
}

void add(struct text *text, const char *format, ...)
{
    const size_t left = sizeof text->data - text->length;
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text->data + text->length, left, format, args);
    va_end(args);
    if (length < 0 || (size_t)length >= left)
        fail("a text has more bytes", sizeof text->data);
    text->length += (size_t)length;
}

static void empty(struct text *text)
{
    text->length = 0;
    text->data[0] = '\0';
}

void print_paragraph(struct text *text)
{
    const size_t indent = text->data[0] == '-' ? 2 : 0;
    const char *word = text->data;
    size_t column = 0;
    while (*word != '\0') {
        size_t length = strcspn(word, " ");
        if (column > 0 && column + 1 + length > COLUMNS)
            column = (size_t)printf("\n%*s", (int)indent, "") - 1;
        else if (column > 0)
            column += (size_t)printf(" ");
        column += (size_t)printf("%.*s", (int)length, word);
        word += length + (word[length] == ' ');
    }
    printf("\n");
    empty(text);
}

/* The cell after the bar at *at, which moves to the next bar; NULL where the row ends, and *at
 * moves to the next row.  A bar within a cell has a backslash before it. */
static const char *next_cell(size_t *length, const char **at)
{
    const char *cell = *at + 2;
    if ((*at)[1] == '\n') {
        *at += 2;
        return NULL;
    }
    const char *end = strstr(*at + 1, " |");
    *length = (size_t)(end - cell);
    *at = end + 1;
    return cell;
}

void print_table(struct text *text)
{
    size_t widths[MOST_CELLS] = {0}, length;
    const char *at = text->data, *cell;
    while (*at != '\0')
        for (size_t i = 0; next_cell(&length, &at) != NULL; i++) {
            if (i == MOST_CELLS)
                fail("a row has more cells", MOST_CELLS);
            if (at[1] != '\n' || widths[i] == 0)
                widths[i] = length > widths[i] ? length : widths[i];
        }
    at = text->data;
    for (bool head = true; *at != '\0'; head = false) {
        for (size_t i = 0; (cell = next_cell(&length, &at)) != NULL; i++)
            printf("| %.*s%*s ", (int)length, cell,
                   length < widths[i] ? (int)(widths[i] - length) : 0, "");
        printf("|\n");
        for (size_t i = 0; head && i < MOST_CELLS && widths[i] > 0; i++) {
            printf("|");
            for (size_t dash = 0; dash < widths[i] + 2; dash++)
                printf("-");
        }
        printf("%s", head ? "|\n" : "");
    }
    empty(text);
}
