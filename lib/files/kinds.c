/* kinds.c: a table of first bytes. */
#include "files/file.h"

#include <string.h>

#include "basics/status.h"

#define START 40 /* bytes looked at; no row of the table is longer */

#define SAFETENSORS "a safetensors file"
#define SAVE_ANEW \
    "save it anew with safetensors.torch.save_file(torch.load(FILE), \"model.safetensors\")"
#define UNPACK "unpack it"
#define READ_IT "see what it says; a download that failed has to be repeated"
#define FETCH "the download failed: fetch it again"

static const struct {
    const char *bytes;
    size_t count;
    const char *what, *remedy;
} kinds[] = {
    {"version https://git-lfs", 23, "a pointer of git-LFS", "fetch the file itself (git lfs pull)"},
    {"GGUF", 4, "a GGUF file of llama.cpp", "name the file itself as the model"},
    {"\x93NUMPY", 6, "one array of NumPy (.npy)", "put all arrays into one file (numpy.savez)"},
    {"PK\3\4", 4, "a ZIP archive, as torch.save writes", SAVE_ANEW},
    {"\x80\2", 2, "a pickle, as torch.save writes", SAVE_ANEW},
    {"\x80\3", 2, "a pickle, as torch.save writes", SAVE_ANEW},
    {"\x80\4", 2, "a pickle, as torch.save writes", SAVE_ANEW},
    {"\x80\5", 2, "a pickle, as torch.save writes", SAVE_ANEW},
    {"\x89HDF", 4, "an HDF5 file of Keras", "load the model and save it as safetensors"},
    {"\x1f\x8b", 2, "compressed (gzip)", UNPACK},
    {"BZh", 3, "compressed (bzip2)", UNPACK},
    {"\xfd"
     "7zXZ",
     5, "compressed (xz)", UNPACK},
    {"\x28\xb5\x2f\xfd", 4, "compressed (zstd)", UNPACK},
    {"7z\xbc\xaf", 4, "a 7-Zip archive", UNPACK},
    {"<", 1, "a web page", FETCH},
    {"{", 1, "JSON", "take the file of tensors itself"},
};

static enum attn_status fail_kind(const char *name, const char *what, const char *wanted,
                                  const char *remedy, struct attn_error *error)
{
    return attn_fail(error, ATTN_MALFORMED, name, "%.64s is %s, not %s: %s", name, what, wanted,
                     remedy);
}

enum attn_status attn_fail_torch(const char *name, struct attn_error *error)
{
    return fail_kind(name, "a file of torch.save", SAFETENSORS, SAVE_ANEW, error);
}

enum attn_status attn_check_kind(const char *start, size_t count, const char *name,
                                 const char *wanted, struct attn_error *error)
{
    for (size_t i = 0; i < ATTN_COUNT(kinds); i++)
        if (kinds[i].count <= count && memcmp(kinds[i].bytes, start, kinds[i].count) == 0)
            return fail_kind(name, kinds[i].what, wanted, kinds[i].remedy, error);
    for (size_t i = 0; i < attn_min(count, START); i++)
        if ((start[i] < 0x20 || start[i] > 0x7e) && start[i] != '\t' && start[i] != '\r' &&
            start[i] != '\n')
            return ATTN_OK;
    return fail_kind(name, "text", wanted, READ_IT, error);
}

enum attn_status attn_file_kind(int file, const char *name, size_t size, struct attn_error *error)
{
    char start[START];
    const size_t count = attn_min(size, sizeof start);
    if (attn_file_read(start, file, name, 0, count, NULL) != ATTN_OK)
        return ATTN_OK;
    return attn_check_kind(start, count, name, SAFETENSORS, error);
}
