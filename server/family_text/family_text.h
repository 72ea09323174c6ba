/* family_text.h: what the parts of the program share that prints the table of families.
 *
 * Texts are gathered in a struct text and printed as Markdown that reads well in a terminal too. */
#ifndef FAMILY_TEXT_H
#define FAMILY_TEXT_H

#include "families/family.h"

struct text {
    char data[1 << 15];
    size_t length;
};

/* Ends the program, and so the build, where the text gets too long. */
void add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Print and empty a text: in lines of at most 120 columns, those of a list item ("- ...") but the
 * first indented; as a table, whose lines are rows "| cell | cell |", the first one its head, with
 * columns of even width. */
void print_paragraph(struct text *text);
void print_table(struct text *text);

/* The name of the family's key for the field at `offset`, NULL if there is none. */
const char *key_name(const struct attn_family *family, size_t offset);

/* Adds "q, k, the latent". */
void add_projections(struct text *text, unsigned projections);

/* Adds which projections have biases, and when. */
void add_biases(struct text *text, const struct attn_family *family);

/* Adds " `a`, `b`": the keys of a list that do not touch attention, with a note after each; false
 * if there is none. */
bool add_ignored(struct text *text, const struct attn_hf_key *keys, const char *note);

/* Print parts of a family's section. */
void print_traits(const struct attn_family *family);
void print_tensors(const struct attn_family *family);
void print_keys(const struct attn_family *family);

/* Print parts of docs/MODELS.md: a row for each model_type, and what families share. */
void print_families(void);
void print_rope_keys(void);
void print_common_keys(void);

#endif
