/* replay.c: runs a target over inputs from files, as libFuzzer's main does with -runs=0, for
 * compilers without it.  Arguments are files and directories of files. */
#include <dirent.h>
#include <sys/stat.h>

#include "fuzz.h"

#define MAX_BYTES ((size_t)16 << 20)

static size_t replayed;

static void replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(MAX_BYTES);
    FUZZ_EXPECT(file != NULL && bytes != NULL);
    size_t size = fread(bytes, 1, MAX_BYTES, file);
    fclose(file);
    uint8_t *exact = malloc(size > 0 ? size : 1);
    FUZZ_EXPECT(exact != NULL);
    memcpy(exact, bytes, size);
    free(bytes);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    replayed++;
}

static void replay(const char *path)
{
    DIR *directory = opendir(path);
    const struct dirent *found;
    if (directory == NULL) {
        replay_file(path);
        return;
    }
    while ((found = readdir(directory)) != NULL) {
        char inner[1024];
        if (found->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, found->d_name);
        replay_file(inner);
    }
    closedir(directory);
}

int main(int argc, char *argv[])
{
    for (int i = 1; i < argc; i++)
        replay(argv[i]);
    printf("replay: %zu inputs\n", replayed);
    return EXIT_SUCCESS;
}
