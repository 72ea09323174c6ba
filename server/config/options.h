/* options.h: the option table, and how one option gets its value. */
#ifndef SRV_CONFIG_OPTIONS_H
#define SRV_CONFIG_OPTIONS_H

#include "config/config.h"

enum srv_option_kind {
    SRV_OPTION_TEXT,   /* char * */
    SRV_OPTION_SIZE,   /* size_t */
    SRV_OPTION_CHOICE, /* unsigned: the index of a word, the value of an enum */
    SRV_OPTION_MODELS, /* entries NAME=DIR of config->models; a flag may be given several times */
    SRV_OPTION_MODE,   /* a flag without a value, which chooses the run mode */
};

struct srv_option {
    const char *name; /* the file's key; ATTN_NAME and --na-me follow from it.  Of MODELS the flag
                         alone has this name, key and variable have its plural */
    enum srv_option_kind kind;
    size_t offset;           /* of the value in struct srv_config */
    bool scales_with_memory; /* SIZE: lowered where memory is short (srv_config_divide_shares) */
    const char *initial;     /* the default as text; NULL: none, or found out at start */
    size_t min, max;         /* SIZE */
    const char *unit;        /* SIZE: "bytes"; NULL where the number counts what the name says */
    const char *choices;     /* CHOICE: the words, separated by |, in the order of the enum */
    const char *accepts;     /* TEXT: what the text must be, in words */
    bool (*valid)(const char *text); /* TEXT: NULL where any text but "" is accepted */
    bool is_list;                    /* TEXT: the file may have a list of texts instead */
    bool repeats;                    /* a list whose flag may be given several times */
    enum srv_run_mode mode;          /* MODE */
    const char *help;
};

extern const struct srv_option srv_options[];
extern const size_t srv_option_count;

/* The option's name as a source spells it: "max_queue", "ATTN_MAX_QUEUE", "--max-queue". */
#define SRV_OPTION_SPELL_MAX 32
void srv_option_spell(char out[SRV_OPTION_SPELL_MAX], const struct srv_option *option,
                      enum srv_config_source source);

/* The option that `source` spells as these `length` bytes; NULL where there is none. */
const struct srv_option *srv_option_find(const char *text, size_t length,
                                         enum srv_config_source source);

/* Whether the option may stand in the configuration file. */
bool srv_option_in_file(const struct srv_option *option);

/* Writes what the option accepts, worded to follow "is not": "one of off on". */
void srv_option_describe(char *out, size_t size, const struct srv_option *option);

/* The word that stands for the option's value in texts, such as "FILE"; "" where it has none. */
const char *srv_option_value(const struct srv_option *option);

/* Gives the option the value that `text` stands for.  False where the option does not accept it:
 * `message` then says what it accepts, and nothing has changed. */
bool srv_option_set(struct srv_config *config, const struct srv_option *option,
                    enum srv_config_source source, const char *text, char *message, size_t size);

/* Reads a whole number with an optional suffix: KiB, MiB, GiB, TiB for powers of 1024; k, M, G, T,
 * or KB, kB, MB, GB, TB, for powers of 1000.  False where the text is none, or exceeds SIZE_MAX. */
bool srv_size_parse(size_t *out, const char *text);

#endif
