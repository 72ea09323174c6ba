/* judge.h: whether a daemon keeps its promise on a state of the disk. */
#ifndef TESTS_POWER_JUDGE_H
#define TESTS_POWER_JUDGE_H

#include "disk.h"
#include "record.h"

#define JUDGE_TEXT 512

struct judge_verdict {
    char text[JUDGE_TEXT]; /* what is wrong */
    size_t promised, lost; /* sessions that may not miss, and those of them that do */
};

/* Builds the state as `path`, which does not exist, starts a daemon on it twice, and compares its
 * sessions with the record.  Returns true where the promise is kept, and removes the directory.
 * Else the directory stays, and the log of the daemon is in `path`.log. */
bool judge(struct judge_verdict *out, const struct record *record, const struct disk *disk,
           const struct disk_state *state, const char *path);

#endif
