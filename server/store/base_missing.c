/* base_missing.c: which session files a base lists that are not there. */
#include "store/store_files.h"

size_t srv_base_missing(int directory, const struct srv_file *base, const struct srv_file files[],
                        size_t count, srv_missing_report *report, void *context)
{
    struct srv_file_reader reader;
    struct srv_base_size size;
    struct srv_base_lists lists = {0};
    struct srv_file file;
    size_t missing = 0;
    if (!srv_file_reader_open(&reader, directory, base->name))
        return 0;
    const bool sound =
        srv_base_check(&size, &reader, base->generation) && srv_base_lists(&lists, &reader, &size);
    for (size_t i = 0; sound && i < size.entries; i++) {
        const struct srv_base_entry *entry = &lists.entries[i];
        if (srv_files_have_session(files, count, entry->generation, entry->epoch))
            continue;
        missing++;
        srv_file_name(&file, SRV_FILE_SESSION, entry->generation, entry->epoch);
        report(context, file.name);
    }
    srv_base_lists_fini(&lists);
    srv_file_reader_close(&reader);
    return missing;
}
