/* checkpoint.h: a directory as Hugging Face publishes models: config.json and tensors; or a single
 * file of tensors, .safetensors or .npz, whose configuration is said elsewhere.
 *
 * Tensors are in model.safetensors or, where that is absent, in the shards that
 * model.safetensors.index.json maps them to.  A shard is opened when one of its tensors is first
 * looked up, so a checkpoint of which only some layers are wanted needs only their shards. */
#ifndef ATTN_LIB_LAYERS_CHECKPOINT_H
#define ATTN_LIB_LAYERS_CHECKPOINT_H

#include <limits.h>
#include <time.h>

#include "attn.h"
#include "attn_limits.h"
#include "files/checksum.h"
#include "files/gguf_model.h"
#include "files/npz.h"
#include "files/quantized.h"
#include "files/safetensors.h"

struct attn_checkpoint;

/* A tensor and the file it is in, both borrowed from the checkpoint. */
struct attn_tensor {
    const struct attn_safetensors *file;
    struct attn_npz *npz;                   /* the file instead, where that is one */
    const struct attn_gguf_model *gguf;     /* the file or files, where they are such */
    const struct attn_quantized *quantized; /* the tensors instead, where they are such */
    const struct attn_tensor_entry *entry;  /* NULL: no such tensor */
};

/* Opens the directory `path` and reads config.json, unless `configured` says that the configuration
 * is elsewhere, and the header of the single file, or the index.  A GGUF file, whose keys are the
 * configuration, may lie there instead.  A path that is another file must be configured.
 * Errors: ATTN_NOT_FOUND, ATTN_IO, ATTN_MALFORMED, ATTN_NO_MEMORY. */
enum attn_status attn_checkpoint_open(struct attn_checkpoint **out, const char *path,
                                      bool configured, struct attn_error *error);
void attn_checkpoint_close(struct attn_checkpoint *checkpoint);

/* Memory that the checkpoint takes: configuration, index, headers of the files that are open; 0 for
 * NULL. */
size_t attn_checkpoint_memory(const struct attn_checkpoint *checkpoint);

/* The text of config.json, of *length bytes, as it stands in the file, or what the keys of a GGUF
 * file say; NULL where no file was read for it.  Borrowed. */
const char *attn_checkpoint_config(const struct attn_checkpoint *checkpoint, size_t *length);

/* The text of another file of its directory, the caller's to attn_free.
 * Errors: those of attn_file_slurp. */
enum attn_status attn_checkpoint_text(char **out, size_t *length,
                                      const struct attn_checkpoint *checkpoint, const char *name,
                                      struct attn_error *error);

/* Looks a tensor up, opening its shard if need be.  A tensor that does not exist is no error:
 * out->entry is NULL then.
 * Errors: those of opening its shard; ATTN_MALFORMED where the index names a tensor that its shard
 * does not hold. */
enum attn_status attn_checkpoint_find(struct attn_tensor *out, struct attn_checkpoint *checkpoint,
                                      const char *name, struct attn_error *error);

/* out[i] = element first + i of the flattened tensor, i < count, as float32: by
 * attn_safetensors_read_f32 or attn_gguf_model_read_f32, on any thread, or by attn_npz_read_f32, on
 * one thread at a time. */
enum attn_status attn_tensor_read_f32(float *out, const struct attn_tensor *tensor, size_t first,
                                      size_t count, struct attn_error *error);

/* The file of the tensor, its descriptor, and *offset and *bytes of what is read of it there. */
int attn_tensor_extent(size_t *offset, size_t *bytes, const struct attn_tensor *tensor);

/* As attn_gguf_model_check_type; of other files any configuration may be. */
enum attn_status attn_checkpoint_check_type(const struct attn_checkpoint *checkpoint,
                                            const char *model_type, struct attn_error *error);

/* Whether weights are [out][in] there whatever their family publishes: in GGUF files. */
bool attn_checkpoint_is_gguf(const struct attn_checkpoint *checkpoint);

/* Keeps the description of a quantised weight, an allocation that becomes the checkpoint's, as the
 * tensor `name`; and the one kept under that name, NULL where there is none.
 * Error: ATTN_NO_MEMORY; the allocation stays the caller's then. */
enum attn_status attn_checkpoint_keep(struct attn_checkpoint *checkpoint,
                                      struct attn_quantized *weight, const char *name,
                                      struct attn_error *error);
const struct attn_quantized *attn_checkpoint_quantized(const struct attn_checkpoint *checkpoint,
                                                       const char *name);

/* Bytes that a thread takes to read one of these weights, at most. */
size_t attn_checkpoint_scratch(const struct attn_checkpoint *checkpoint);

/* Adds to `sum` what tells this content from another without reading all of it: the index, and for
 * each file that is open size, inode, times of the last change, and some 64 pages of its content.
 * *changed becomes the last of these times.  False where a file cannot be read. */
bool attn_checkpoint_stamp(struct attn_checksum *sum, time_t *changed,
                           const struct attn_checkpoint *checkpoint);

/* Calls visit() with the name of each tensor that begins with `prefix`, as the open files and the
 * index have them: a name that both have comes twice.  Ends where visit() returns false. */
void attn_checkpoint_visit(const struct attn_checkpoint *checkpoint, const char *prefix,
                           attn_visit_name *visit, void *context);

/* Writes the name that a tensor of that published name has in the files. */
void attn_checkpoint_name(char out[ATTN_SAFETENSORS_MAX_NAME],
                          const struct attn_checkpoint *checkpoint, const char *name);

/* Writes the files' names of the first tensors whose published ones begin with `prefix`, "a, b,
 * ...". */
void attn_checkpoint_list(char *out, size_t size, const struct attn_checkpoint *checkpoint,
                          const char *prefix);

/* ---- checkpoint_absent.c: what to do about a directory that lacks what a checkpoint has ---- */

/* Refuses a directory with an adapter, which would have to be applied.
 * Error: ATTN_UNSUPPORTED. */
enum attn_status attn_refuse_adapter(int directory, struct attn_error *error);

/* Copies the name of the directory's GGUF file, of a split model the first part's; "" where there
 * is none, or a file of one of the `count` names.
 * Error: ATTN_MALFORMED where there are several. */
enum attn_status attn_find_gguf(char name[NAME_MAX + 1], int directory, const char *const *names,
                                size_t count, struct attn_error *error);

/* Fails with ATTN_NOT_FOUND: `name` is not there, in the words of `absent`; what else is there, and
 * what to do about it, follows. */
enum attn_status attn_fail_absent(int directory, const char *name, const char *absent,
                                  struct attn_error *error);

/* The same for a path that leads nowhere. */
enum attn_status attn_fail_no_path(const char *path, struct attn_error *error);

#endif
