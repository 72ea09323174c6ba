/* family.c: the table of families, and finding a row.
 *
 * The rows are in llama.c, decoders.c, gpt.c, encoders.c, stacks.c and own.c; rows.h has their
 * order.  The row of random models is not in the table: models/model.c names it, since no
 * configuration does. */
#include "families/family.h"

#include <string.h>

#include "families/rows.h"

#define POINT(name) &ATTN_ROW(name)
static const struct attn_family *const families[] = {ATTN_FAMILIES(POINT)};

const struct attn_family *attn_family_at(size_t i)
{
    return i < sizeof families / sizeof families[0] ? families[i] : NULL;
}

static bool equal_or_any(const char *wanted, const char *name)
{
    return wanted == NULL || name == NULL || strcmp(wanted, name) == 0;
}

const struct attn_family *attn_family_find(const char *model_type, const char *submodel_type,
                                           const char *stack)
{
    const struct attn_family *family;
    for (size_t i = 0; (family = attn_family_at(i)) != NULL; i++) {
        bool fits = stack == NULL || (family->stack != NULL && strcmp(family->stack, stack) == 0);
        if (fits && strcmp(family->model_type, model_type) == 0 &&
            equal_or_any(family->submodel_type, submodel_type))
            return family;
    }
    return NULL;
}
