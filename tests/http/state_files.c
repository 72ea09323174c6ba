/* state_files.c: the files of a state directory, found and damaged. */
#include "state_files.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "process.h"

size_t state_files_find(char path[320], const char *directory, const char *suffix)
{
    size_t count = 0, end = strlen(suffix);
    DIR *list = opendir(directory);
    ck_assert_ptr_nonnull(list);
    for (const struct dirent *file; (file = readdir(list)) != NULL;) {
        size_t length = strlen(file->d_name);
        if (length < end || strcmp(file->d_name + length - end, suffix) != 0)
            continue;
        snprintf(path, 320, "%s/%s", directory, file->d_name);
        count++;
    }
    closedir(list);
    return count;
}

void state_files_await(const char *directory, const char *suffix)
{
    char path[320];
    for (unsigned waited = 0; state_files_find(path, directory, suffix) == 0; waited += 20) {
        ck_assert_uint_lt(waited, 20000);
        pause_ms(20);
    }
}

void state_files_flip(const char *path, off_t at)
{
    unsigned char byte;
    int fd = open(path, O_RDWR);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

off_t state_files_record(const char *path, enum srv_record_type type, size_t skipped)
{
    struct srv_record_head head = {0};
    off_t at = SRV_JOURNAL_HEAD;
    int fd = open(path, O_RDONLY);
    while (pread(fd, &head, sizeof head, at) == (ssize_t)sizeof head &&
           (head.type != type || skipped-- > 0))
        at += (off_t)(sizeof head + head.length);
    close(fd);
    return at;
}
