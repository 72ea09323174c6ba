/* options.h: the option table, how one option gets its value, and what the files of this room
 * share. */
#ifndef SRV_CONFIG_OPTIONS_H
#define SRV_CONFIG_OPTIONS_H

#include <jansson.h>

#include "base/text_file.h"
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
    bool scales_with_memory; /* SIZE: lowered where memory is short (srv_config_divide_defaults) */
    const char *initial;     /* the default as text; NULL: none, or found out at start */
    size_t min, max;         /* SIZE */
    const char *unit;        /* SIZE: "bytes"; NULL where the number counts what the name says */
    const char *choices;     /* CHOICE: the words, separated by |, in the order of the enum */
    const char *accepts;     /* TEXT, MODELS: what the text must be, in words */
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

/* One reading of the configuration: its result, and the message of a refusal. */
struct srv_config_reading {
    struct srv_config *config;
    char *message; /* [SRV_MESSAGE_MAX] */
};

/* Gives the option the value that `text` stands for.  False where the option does not accept it:
 * the message then says what it accepts, and nothing has changed. */
bool srv_option_set(struct srv_config_reading *reading, const struct srv_option *option,
                    enum srv_config_source source, const char *text);

/* Reads a whole number with an optional suffix: KiB, MiB, GiB, TiB for powers of 1024; k, M, G, T,
 * or KB, kB, MB, GB, TB, for powers of 1000.  False where the text is none, or exceeds SIZE_MAX. */
bool srv_size_parse(size_t *out, const char *text);

/* ---- option_checks.c: which texts an option may have ----------------------------------------- */

bool srv_host_valid(const char *text); /* localhost, or a numeric address */

/* Lists separated by commas, of SRV_LISTED_MAX characters an entry at most. */
bool srv_hosts_valid(const char *text);   /* names without ports */
bool srv_adopted_valid(const char *text); /* names of directories, SRV_MAX_ADOPTED at most */
bool srv_origins_valid(const char *text); /* as a browser writes them in Origin */

/* ---- models.c and model_dir.c: the list of models -------------------------------------------- */

/* Keeps a line for the log, while there is room, of what was given and is passed over. */
void srv_config_note(struct srv_config_reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Reads the value of the file's key `models` into config->models. */
bool srv_config_models(struct srv_config_reading *reading, json_t *list);

/* Adds the models of `text`, which `name` has given: NAME=DIR, or several that commas or white
 * space separate.  One with the name of a model of a weaker source takes its place. */
bool srv_config_model_list(struct srv_config_reading *reading, const char *name, const char *text,
                           enum srv_config_source source);

/* Adds a model for each directory in config->model_dir that holds a config.json, in the order of
 * their names, but for those whose name another source has given.  Notes what else is there, but
 * for names that begin with a dot, and that no checkpoint is. */
bool srv_config_model_dir(struct srv_config_reading *reading);

/* Gives the models that do not say it the dtypes of the options. */
void srv_config_model_dtypes(struct srv_config *config);

/* The model of that name; NULL where there is none. */
struct srv_model_entry *srv_config_find_model(const struct srv_config *config, const char *name,
                                              size_t length);

/* An entry after the last one, which counts from then on and is empty; NULL, with the message,
 * where there are too many or memory is short. */
struct srv_model_entry *srv_config_new_model(struct srv_config_reading *reading);

void srv_config_free_model(struct srv_model_entry *entry);

/* ---- object.c: JSON objects of configuration, by tables of their members --------------------- */

/* The object that is being read. */
struct srv_object {
    void *out;          /* what its members fill */
    void *context;      /* for the members' readers */
    char path[32];      /* "models[3]", for messages; "": the whole file */
    const char *member; /* the name of the one that is being read */
    void *to;           /* its place in *out, by its row */
    char *message;      /* [SRV_MESSAGE_MAX] */
};

/* A row of an object's table; the last one, of any other name, has NULL. */
struct srv_member {
    const char *name;
    bool (*read)(struct srv_object *object, json_t *value); /* false: refused */
    size_t offset;                                          /* of its place in *out */
    const char *wanted; /* what the value must be; the message where `read` writes none */
};

/* Reads an object's members in their order.  False where one is refused: the message names it. */
bool srv_object_read(struct srv_object *object, const struct srv_member rows[], json_t *value);

/* Reads an object that is a file of `most` bytes at most, whose messages begin with the path. */
bool srv_object_read_file(struct srv_object *object, const struct srv_member rows[],
                          const char *path, size_t most, enum srv_text_kind kind);

/* Refuses the member that is being read: "models[3].path: out of memory".  Always false. */
bool srv_object_refuse(const struct srv_object *object, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
