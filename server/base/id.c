/* id.c: the rule for names that clients choose. */
#include "base/id.h"

static bool is_alphanumeric(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool srv_id_character(char c) { return is_alphanumeric(c) || c == '_' || c == '.' || c == '-'; }

bool srv_id_valid(const char *id)
{
    size_t length = 0;
    while (srv_id_character(id[length]))
        length++;
    return is_alphanumeric(id[0]) && length <= SRV_ID_MAX && id[length] == '\0';
}

bool srv_instance_valid(const char *text)
{
    size_t length = 0;
    while (is_alphanumeric(text[length]) || text[length] == '-')
        length++;
    return length >= 1 && length <= SRV_INSTANCE_MAX && text[length] == '\0' && text[0] != '-';
}
