/* mapped.h: what happens where a mapped file of weights can no longer be read. */
#ifndef SRV_MAPPED_H
#define SRV_MAPPED_H

#include "ops/log.h"
#include "session/models.h"

/* From then on a page of a model's mapped file of weights that cannot be read (SIGBUS) ends the
 * process with status 1, after an error line that names the model and the directory.  The arguments
 * must stay until srv_mapped_forget. */
void srv_mapped_watch(const struct srv_models *models, const char *directory, struct srv_log *log);
void srv_mapped_forget(void);

/* Ends the process in the same way where such a file has become shorter: of a page that is cut in
 * its middle the rest would be read as zeros. */
void srv_mapped_check(void);

#endif
