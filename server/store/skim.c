/* skim.c: places of a journal's records. */
#include "store/skim.h"

#include <stdlib.h>

#define PLACE_RECORDS 64

bool srv_places_note(struct srv_places *places, const struct srv_journal_reader *reader,
                     const struct srv_record *record)
{
    places->synced = record->head.synced > places->synced ? record->head.synced : places->synced;
    if (reader->sequence % PLACE_RECORDS != 0)
        return true;
    if (places->count == places->capacity) {
        const size_t capacity = 2 * places->capacity + 16;
        struct srv_journal_reader *more = realloc(places->items, capacity * sizeof *more);
        if (more == NULL)
            return false;
        places->items = more;
        places->capacity = capacity;
    }
    places->items[places->count++] = *reader;
    return true;
}

bool srv_places_tail_is_sound(const struct srv_places *places,
                              const struct srv_journal_reader *first, size_t end)
{
    struct srv_journal_reader reader = *first;
    struct srv_record record;
    for (size_t i = 0; i < places->count && places->items[i].sequence <= places->synced; i++)
        reader = places->items[i];
    reader.skims = false;
    while (reader.at < end && srv_journal_read(&record, &reader) == SRV_READ_RECORD)
        continue;
    return reader.at == end;
}

void srv_places_fini(struct srv_places *places)
{
    free(places->items);
    *places = (struct srv_places){0};
}
