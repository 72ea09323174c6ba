/* main.c: prints what the table of families says, for people.
 *
 *   family_text           a section for each family, for attnd inspect --family
 *   family_text --page    the end of docs/MODELS.md: a row for each family, and what families share
 *
 * Keys, values, tensors and defaults are read from the rows by which the library itself reads
 * configurations, so a section cannot say other than what the library does.  The words for fields
 * stand in keys.c.  Before each section stand the family's model_type and its name in replies;
 * each of the three ends with a NUL. */
#include <stdio.h>
#include <string.h>

#include "family_text/family_text.h"

const char *key_name(const struct attn_family *family, size_t offset)
{
    const struct attn_hf_key *key = attn_hf_key_for_field(family->keys, offset);
    return key != NULL ? key->name : NULL;
}

/* The model_types that the nested object may have, which have blanks between. */
static void print_types_of(const char *types)
{
    printf(", whose `model_type` is ");
    for (size_t length; *types != '\0'; types += length + (types[length] == ' ')) {
        length = strcspn(types, " ");
        printf("`%.*s`%s", (int)length, types, types[length] != '\0' ? " or " : "");
    }
}

/* The model_type of random models is "random". */
static void print_section(const struct attn_family *family)
{
    printf("%s%c%s%c", family->model_type != NULL ? family->model_type : family->name, '\0',
           family->name, '\0');
    printf("## %s%s%s\n\n", family->name, family->stack != NULL ? ", stack " : "",
           family->stack != NULL ? family->stack : "");
    if (family->model_type != NULL)
        printf("`\"model_type\": \"%s\"`", family->model_type);
    else
        printf("The configuration of a model of random weights, which has no tensors to read. Keys "
               "that are not in this table are\nrefused.");
    if (family->subconfig != NULL)
        printf("; settings stand under `%s`", family->subconfig);
    if (family->subconfig != NULL && family->submodel_type != NULL)
        print_types_of(family->submodel_type);
    printf("\n\n");
    print_traits(family);
    if (family->tensors != NULL)
        print_tensors(family);
    print_keys(family);
    printf("%c", '\0');
}

int main(int argc, char *argv[])
{
    if (argc > 1 && strcmp(argv[1], "--page") == 0) {
        print_families();
        print_rope_keys();
        print_common_keys();
    } else {
        for (size_t i = 0; attn_family_at(i) != NULL; i++)
            print_section(attn_family_at(i));
        print_section(&attn_family_random);
    }
    return fflush(stdout) != 0 || ferror(stdout) != 0;
}
