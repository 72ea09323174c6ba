/* ui.c: the files of the attention viewer: those of server/ui/, the client in clients/js/ and the
 * demonstration model in examples/demo/.
 *
 * The Makefile compresses and lists them: it defines SRV_UI_FILES(X), an X(number, name, path) for
 * each, `path` being that of its compressed form. */
#include "ui/ui.h"

#include <string.h>

#include "base/embed.h"

#define EMBED(number, name, path) SRV_EMBED(ui_##number, path)
SRV_UI_FILES(EMBED)

#define ROW(number, name, path) {name, begin_ui_##number, end_ui_##number},
static const struct {
    const char *name, *begin, *end;
} files[] = {SRV_UI_FILES(ROW)};

static const struct {
    const char *suffix, *type;
} types[] = {
    {".html", "text/html; charset=utf-8"},
    {".js", "text/javascript; charset=utf-8"},
    {".mjs", "text/javascript; charset=utf-8"},
    {".css", "text/css; charset=utf-8"},
    {".svg", "image/svg+xml"},
    {".json", "application/json"},
    {".safetensors", "application/octet-stream"},
};

static const char *type_of(const char *name)
{
    const char *suffix = strrchr(name, '.');
    for (size_t i = 0; suffix != NULL && i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].suffix, suffix) == 0)
            return types[i].type;
    return "application/octet-stream";
}

bool srv_ui_at(struct srv_ui_file *out, size_t i)
{
    if (i >= sizeof files / sizeof files[0])
        return false;
    *out = (struct srv_ui_file){
        .name = files[i].name,
        .type = type_of(files[i].name),
        .bytes = files[i].begin,
        .length = (size_t)(files[i].end - files[i].begin),
    };
    return true;
}

bool srv_ui_find(struct srv_ui_file *out, const char *name)
{
    for (size_t i = 0; srv_ui_at(out, i); i++)
        if (strcmp(out->name, name) == 0)
            return true;
    return false;
}
