/* slots_internal.h: a table of slot files, for slots.c and slots_io.c. */
#ifndef SRV_SLOTS_INTERNAL_H
#define SRV_SLOTS_INTERNAL_H

#include <pthread.h>

#include "store/slots.h"

#define SRV_SLOT_WORD 64 /* slots of a word */

struct srv_slot_word {
    uint64_t taken;
    uint64_t dropped; /* after the newest moment began */
    uint64_t leaving; /* dropped before that */
    uint64_t held;    /* has room on the disk, as far as is known */
};

struct srv_slot_file {
    uint64_t generation;
    size_t bytes; /* of a slot */
    int fd;
    uint64_t count;              /* slots */
    struct srv_slot_word *words; /* [ceil(count / SRV_SLOT_WORD)] */
    uint64_t next;               /* where taking begins to look */
    bool unsynced;               /* written since the last flush; the writer's */
    bool kept;                   /* its slots stay as they are, or it can be read only */
    bool gone;                   /* its name was removed */
};

struct srv_slots {
    int directory;
    uint64_t generation;  /* of files that are made */
    uint32_t base;        /* number of the first file */
    uint64_t kept;        /* files up to that generation are */
    pthread_mutex_t lock; /* guards the files but what is the writer's; never held over the disk */
    struct srv_slot_file *files[SRV_SLOT_FILES]; /* [num_files] */
    uint32_t num_files;
    uint64_t written;

    /* The writer's. */
    unsigned char *buffer; /* [BUFFER, or one slot's], aligned to SRV_SLOT_UNIT */
    size_t room, used;
    struct srv_slot at;              /* of the buffer's first byte */
    int error;                       /* errno since the last flush; 0 */
    char failed[SRV_SLOT_FILE_NAME]; /* as srv_slots_failed has it */
    bool keeps_holes;                /* the file system cannot punch any */
    bool made_file;                  /* since the last flush of the directory */
};

static inline struct srv_slot_file *srv_slot_file(const struct srv_slots *slots,
                                                  struct srv_slot slot)
{
    return slots->files[slot.file - slots->base];
}

#endif
