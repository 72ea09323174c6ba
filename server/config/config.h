/* config.h: the daemon's configuration: one JSON file, ATTN_* variables and flags.
 *
 * One option table (options.c) gives each option its name, kind, default, bounds and help:
 * the file's key `max_queue`, the variable ATTN_MAX_QUEUE and the flag --max-queue are the same
 * option.  A flag overrides a variable, a variable the file, the file the default.  Unknown keys,
 * ATTN_* variables and flags are errors that name them, and the option that was probably meant.  A
 * variable that is empty counts as unset.
 *
 * Models come from the list `models` of the file, from ATTN_MODELS and --model, and from the
 * directories of model_dir; these sources add up, and of two models with one name the stronger
 * source's is served, model_dir being the weakest. */
#ifndef SRV_CONFIG_H
#define SRV_CONFIG_H

#include "config/bounds.h"

/* The names of an encoder-decoder checkpoint's stacks, each of which is a model. */
#define SRV_STACKS 6
extern const char *const srv_stack_names[SRV_STACKS];

struct srv_model_entry {
    char name[SRV_ID_MAX + 1];
    char *path;        /* a checkpoint directory, or NULL */
    char *random;      /* the JSON text of a `random` object, or NULL */
    char *config;      /* that of a `config` object, in place of config.json, or NULL */
    char *ignore_keys; /* keys of the configuration that are passed over, with blanks between */
    size_t *layers;    /* [num_layers] or NULL: all */
    size_t num_layers;
    const char *stack;            /* of srv_stack_names, or NULL: the default */
    bool has_dtype, has_kv_dtype; /* false: the options dtype and kv_dtype say it */
    enum attn_dtype dtype, kv_dtype;
    unsigned char source; /* enum srv_config_source */
};

enum srv_run_mode {
    SRV_RUN_SERVE,
    SRV_RUN_CHECK,
    SRV_RUN_CHECK_SHORT,
    SRV_RUN_HEALTH,
    SRV_RUN_HELP,
    SRV_RUN_VERSION,
};

#define SRV_LISTED_MAX 255 /* characters of an entry of allowed_hosts, allow_origins or adopt */

/* The source of an option's value; a later one overrides an earlier one.  SRV_FROM_MEMORY: the
 * default, divided because memory is short; SRV_FROM_STATE_DIR: durability, since that is given. */
enum srv_config_source {
    SRV_FROM_DEFAULT,
    SRV_FROM_MEMORY,
    SRV_FROM_STATE_DIR,
    SRV_FROM_FILE,
    SRV_FROM_VARIABLE,
    SRV_FROM_FLAG,
};

#define SRV_MAX_OPTIONS 64  /* rows of the option table at most */
#define SRV_CONFIG_NOTES 4  /* kept of one reading at most */
#define SRV_CONFIG_NOTE 512 /* bytes of one with its NUL; the rest is cut off */

struct srv_config {
    unsigned mode;                       /* enum srv_run_mode */
    char *config_file;                   /* NULL: none was given */
    char *model_dir;                     /* its directories are models; NULL: none */
    unsigned dtype, kv_dtype;            /* of models that do not say it: 0 f32, 1 bf16, ... */
    char *host;                          /* numeric, IPv4 or IPv6 */
    char *instance;                      /* as srv_instance_valid has it */
    bool names_instance;                 /* it is configured, and not the host's name */
    unsigned cpu_level;                  /* enum attn_cpu_level */
    unsigned gemm;                       /* enum attn_gemm_mode */
    unsigned log;                        /* enum srv_log_level */
    unsigned sharded;                    /* 0: off */
    unsigned sandbox;                    /* 0: off */
    unsigned durability, journal_fsync;  /* enums of store.h */
    unsigned reply_compression;          /* enum srv_reply_compression (wire/coding.h) */
    unsigned allow_unauthenticated;      /* 1: may listen beyond loopback without api_keys */
    char *state_dir;                     /* NULL: none */
    char *adopt;                         /* directories separated by commas; NULL: none */
    char *weights_cache;                 /* a directory; NULL: none */
    char *tls_cert, *tls_key;            /* PEM files; NULL: plain HTTP */
    char *api_keys;                      /* a file; NULL: requests need no key */
    char *allowed_hosts, *allow_origins; /* separated by commas; NULL: none */
    size_t snapshot_interval_s, snapshot_tokens, journal_bytes;
    size_t lame_duck_s; /* from SIGTERM to draining */
    size_t port, threads, event_threads;
    size_t memory_limit; /* 0: that of the control group or the machine */
    struct srv_limits limits;
    struct srv_model_entry *models; /* [SRV_MAX_MODELS], of which num_models are given; or NULL */
    size_t num_models;
    unsigned char sources[SRV_MAX_OPTIONS]; /* enum srv_config_source, by row of the table */
    char notes[SRV_CONFIG_NOTES]
              [SRV_CONFIG_NOTE]; /* what was passed over, for the log; "": no more */
};

/* Reads flags, variables and file.  False with one line in `message` that names the option as its
 * source spells it, and what it accepts.  In either case srv_config_fini frees what was read. */
bool srv_config_read(struct srv_config *config, int argc, char *const argv[], char *const environ[],
                     char message[SRV_MESSAGE_MAX]);
void srv_config_fini(struct srv_config *config);

/* Makes an instance's name of the host's name up to its first dot: a hyphen replaces every
 * character that is neither letter nor digit, leading ones are dropped.  Of a long name the end is
 * kept, by which replicas of one deployment differ.  "attnd" where nothing is left. */
void srv_instance_of(char out[SRV_INSTANCE_MAX + 1], const char *host);

/* Gives every option whose default is a share of memory, and that nobody has set, that default
 * divided by `divisor`, 1 to SRV_MAX_DIVISOR. */
#define SRV_MAX_DIVISOR 64
void srv_config_divide_defaults(struct srv_config *config, unsigned divisor);

/* Takes the first name off *names, a list as `adopt` is; false at its end, which NULL is too. */
bool srv_config_take_name(char out[SRV_LISTED_MAX + 1], const char **names);

/* Whether durability is `journal` because state_dir is given and no durability is. */
bool srv_config_implies_journal(const struct srv_config *config);

/* The engine that the options ask for: `threads` is never 0. */
struct attn_engine_options srv_config_engine(const struct srv_config *config);

/* Whether the numeric address is one that only this machine can reach: 127.0.0.0/8, ::1. */
bool srv_config_is_loopback(const char *host);

/* Appends the resolved options, one a line with the source of each, for --check. */
struct srv_buffer;
void srv_config_print(struct srv_buffer *out, const struct srv_config *config);

/* Appends the text of --help: every option with its default. */
void srv_config_help(struct srv_buffer *out);

/* Writes the http:// or https:// URL of the configured host and a port, an IPv6 host in
 * brackets. */
#define SRV_URL_MAX 80
void srv_config_print_url(char out[SRV_URL_MAX], const struct srv_config *config, unsigned port);

/* ---- first_process.c: the flags of a container's daemon, for a health check that is given none */

#define SRV_FIRST_WORDS 256
#define SRV_FIRST_BYTES 16384

struct srv_first_process {
    int count;
    char *words[SRV_FIRST_WORDS + 2]; /* as argv: attnd's, and --health-check after them */
    char text[SRV_FIRST_BYTES];
};

/* Reads the command line at `path`, /proc/1/cmdline: what follows the word attnd, which may stand
 * after an init of the container.  False where there is none, or it is too long. */
bool srv_first_process_read(struct srv_first_process *out, const char *path);

#endif
