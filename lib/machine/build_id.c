/* build_id.c: finds the note of the linker among those of the object that this code is in. */
#include "machine/build_id.h"

#include <link.h>
#include <stdint.h>
#include <string.h>

static size_t padded(size_t bytes, size_t align) { return (bytes + align - 1) / align * align; }

/* Walks the notes of one segment. */
static bool find_in_notes(struct attn_build_id *out, const unsigned char *at, size_t count,
                          size_t align)
{
    ElfW(Nhdr) note;
    while (count >= sizeof note) {
        memcpy(&note, at, sizeof note);
        const size_t name = sizeof note, data = name + padded(note.n_namesz, 4),
                     end = padded(data + note.n_descsz, align);
        if (end > count)
            return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof ELF_NOTE_GNU &&
            memcmp(at + name, ELF_NOTE_GNU, sizeof ELF_NOTE_GNU) == 0) {
            *out = (struct attn_build_id){at + data, note.n_descsz};
            return note.n_descsz > 0;
        }
        at += end;
        count -= end;
    }
    return false;
}

static bool holds(const struct dl_phdr_info *object, uintptr_t address)
{
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD &&
            address - (object->dlpi_addr + segment->p_vaddr) < segment->p_memsz)
            return true;
    }
    return false;
}

/* Ends the walk over objects at the one that holds this function. */
static int visit_object(struct dl_phdr_info *object, size_t size, void *context)
{
    (void)size;
    if (!holds(object, (uintptr_t)&attn_build_id))
        return 0;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const uintptr_t begin = object->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_NOTE &&
            find_in_notes(context, (const unsigned char *)begin, segment->p_memsz,
                          segment->p_align == 8 ? 8 : 4))
            return 1;
    }
    return -1;
}

bool attn_build_id(struct attn_build_id *out)
{
    *out = (struct attn_build_id){0};
    return dl_iterate_phdr(visit_object, out) == 1;
}
