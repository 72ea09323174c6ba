/* ui.h: the files of the attention viewer, a page that is part of the binary, each as a member of
 * gzip. */
#ifndef SRV_UI_H
#define SRV_UI_H

#include <stdbool.h>
#include <stddef.h>

#define SRV_UI_PAGE "index.html" /* GET /; the others are GET /ui/NAME */

struct srv_ui_file {
    const char *name;  /* without a directory */
    const char *type;  /* media type, as Content-Type has it */
    const char *bytes; /* [length], constant: the file as gzip -9 has it */
    size_t length;
};

/* The i-th file, in no certain order; false beyond the last. */
bool srv_ui_at(struct srv_ui_file *out, size_t i);

/* The file of that name; false where there is none. */
bool srv_ui_find(struct srv_ui_file *out, const char *name);

#endif
