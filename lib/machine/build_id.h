/* build_id.h: which build of the library runs. */
#ifndef ATTN_LIB_MACHINE_BUILD_ID_H
#define ATTN_LIB_MACHINE_BUILD_ID_H

#include <stdbool.h>
#include <stddef.h>

struct attn_build_id {
    const unsigned char *bytes; /* in the program's memory */
    size_t count;
};

/* The id that the linker gave the program or library that this function is part of: a hash of its
 * content.  False where it has none. */
bool attn_build_id(struct attn_build_id *out);

#endif
