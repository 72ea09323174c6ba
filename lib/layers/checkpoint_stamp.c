/* checkpoint_stamp.c: what tells a checkpoint's content from another without reading all of it. */
#include <sys/stat.h>

#include "basics/mem.h"
#include "files/file.h"
#include "layers/checkpoint_files.h"

#define SAMPLES 64 /* of a file, about, at equal distances; all of it where it is short */
#define SAMPLE_BYTES ((size_t)4096)

static bool add_samples(struct attn_checksum *sum, int file, size_t size)
{
    char bytes[SAMPLE_BYTES];
    const size_t distance = attn_max(size / SAMPLES / SAMPLE_BYTES, 1) * SAMPLE_BYTES;
    for (size_t at = 0; at < size; at += distance) {
        const size_t count = attn_min(size - at, SAMPLE_BYTES);
        if (attn_file_read(bytes, file, "checkpoint", at, count, NULL) != ATTN_OK)
            return false;
        attn_checksum_add(sum, bytes, count);
    }
    return true;
}

/* A change sets the time st_ctim, which no program can set.  In images of file systems (squashfs,
 * EROFS) and on some network storage that time is the image's or the object's own, so that other
 * content may have the same: samples tell one checkpoint from another there. */
static bool stamp_file(struct attn_checksum *sum, time_t *changed, int file)
{
    struct stat info;
    if (fstat(file, &info) != 0 || !add_samples(sum, file, (size_t)info.st_size))
        return false;
    const uint64_t facts[] = {
        (uint64_t)info.st_size,        info.st_ino,
        (uint64_t)info.st_mtim.tv_sec, (uint64_t)info.st_mtim.tv_nsec,
        (uint64_t)info.st_ctim.tv_sec, (uint64_t)info.st_ctim.tv_nsec,
    };
    attn_checksum_add(sum, facts, sizeof facts);
    *changed = info.st_ctim.tv_sec > *changed ? info.st_ctim.tv_sec : *changed;
    return true;
}

bool attn_checkpoint_stamp(struct attn_checksum *sum, time_t *changed,
                           const struct attn_checkpoint *checkpoint)
{
    *changed = 0;
    attn_checksum_add(sum, checkpoint->index, checkpoint->index_length);
    if (checkpoint->npz != NULL)
        return stamp_file(sum, changed, attn_npz_descriptor(checkpoint->npz));
    for (size_t i = 0; i < checkpoint->num_shards; i++) {
        const struct attn_safetensors *file = checkpoint->shards[i].file;
        attn_checksum_add(sum, &i, sizeof i);
        if (file != NULL && !stamp_file(sum, changed, attn_safetensors_descriptor(file)))
            return false;
    }
    return true;
}
