/* main.h: what main.c puts together: serving, its signals, upkeep and checks, and the commands
 * that attnd can do instead.  A section's functions are in the file that it names. */
#ifndef SRV_MAIN_H
#define SRV_MAIN_H

#include "app.h"
#include "wire/inputs.h"

/* ---- signals.c ------------------------------------------------------------------------------- */

/* Blocks the signals that serving waits for, in this thread and in those that it starts, so that
 * the main thread takes them (serve.c): SIGTERM, SIGINT and SIGQUIT stop the daemon, SIGHUP
 * reloads, SRV_DRAIN_SIGNAL tells of POST /admin/drain. */
void srv_signals_block(void);
sigset_t srv_signals_served(void);

/* Ignores the signals that would end the process without its last snapshot and mean nothing to it;
 * a file that may not grow (SIGXFSZ) fails its write instead. */
void srv_signals_ignore(void);

/* From now on a signal that stops the daemon ends the process at once, with this status; or, since
 * a request has asked it to drain and no signal has, the second one does. */
void srv_signals_stop_at_once(int status);
void srv_signals_expect_another(void);

/* ---- serve.c: the main thread while the daemon is ready, and until its requests have ended ---
 *
 *   ready      all is served
 *   lame duck  all is served, and /readyz is 503: who sends requests here has time to see it
 *   draining   no connection is accepted, new requests are refused, running ones end */

/* Waits for the signals of srv_signals_served, all blocked in all threads, until it is time to
 * drain: SIGHUP reads keys and certificate again; SIGTERM and POST /admin/drain make a lame duck of
 * the daemon for `lame_duck_s`; SIGINT does not wait for that.  A second SIGTERM or SIGINT ends the
 * process, with status 1.  Then takes no new requests and lets the running ones finish, within
 * `drain_timeout_s`.  Returns when it was asked to stop, of srv_now_ns. */
uint64_t srv_serve(struct srv_app *app);

/* ---- upkeep.c: the thread that expires sessions, returns free memory to the system and looks at
 * mapped files of weights ---------------------------------------------------------------------- */

/* Starts the thread, once sessions are loaded; sessions, store and metrics outlive it.  The caller
 * has blocked the signals that the thread is not to take.  False where memory or threads are
 * short. */
bool srv_upkeep_open(struct srv_app *app);

/* Ends the thread, after what it does at the moment.  Takes NULL. */
void srv_upkeep_close(struct srv_upkeep *upkeep);

/* ---- mapped.c: the end where a mapped file of weights cannot be read any more ---------------- */

/* From then on a page of a model's mapped file of weights that cannot be read (SIGBUS) ends the
 * process with status 1, after an error line that names the model and the directory.  The arguments
 * must stay until srv_mapped_forget. */
void srv_mapped_watch(const struct srv_models *models, const char *directory, struct srv_log *log);
void srv_mapped_forget(void);

/* Ends the process in the same way where such a file has become shorter: of a page that is cut in
 * its middle the rest would be read as zeros. */
void srv_mapped_check(void);

/* ---- self_check.c: the proof that a step's bits do not depend on its batch, without which attnd
 * does not serve ------------------------------------------------------------------------------- */

/* Proves batch invariance (attn_self_check) for every loaded model on the daemon's engine and logs
 * a line for each.  False, with the message, where a proof fails. */
bool srv_self_check(struct srv_app *app, char message[SRV_MESSAGE_MAX]);

/* Does the same for --check, on an engine of its own and one layer of each model, which it loads;
 * appends a line for each. */
bool srv_self_check_print(struct srv_buffer *out, const struct srv_config *config,
                          char message[SRV_MESSAGE_MAX]);

/* ---- command_*.c: each command returns the exit status --------------------------------------- */

int srv_command_help(void);
int srv_command_version(void);

/* Reads the models' headers and prints the options, fitted to the memory limit, the models, and an
 * upper bound on the memory that serving takes. */
int srv_command_check(struct srv_config *config);

/* Sends GET /readyz to the daemon at the configured address: 0 where the answer is 200 within
 * SRV_HEALTH_SECONDS, else 1 with a line on standard error.  The process's SIGALRM is used. */
#define SRV_HEALTH_SECONDS 3
int srv_command_health(const struct srv_config *config);

/* attnd inspect PATH: prints what a checkpoint, or a configuration alone, holds.  Takes the
 * arguments that follow `inspect`; 1 where there is no checkpoint, 2 where an argument is wrong,
 * each with a line on standard error.  Reads neither weights nor attnd's configuration. */
int srv_command_inspect(int argc, char *const argv[]);

/* attnd inspect --family: prints which keys and tensors of that model_type, or family as replies
 * name it, are read, and how its layers attend; "": every model_type.  1 without memory, 2 where
 * there is no such family, each with a line on standard error. */
int srv_command_family(const char *family);

/* attnd journal check|salvage DIR: prints what a state directory holds, and saves what can be saved
 * of its damaged files.  Takes the arguments that follow `journal`: 0 all is whole, or was saved; 1
 * something is damaged, or could not be read or saved, with a line on standard error; 2 the
 * arguments or the configuration are wrong. */
int srv_command_journal(int argc, char *const argv[]);

/* command_help.c: prints the text on standard output and frees it; returns the exit status. */
#define SRV_PRINTED_MAX ((size_t)1 << 20) /* bytes of such a text, at most */
int srv_print_text(struct srv_buffer *text);

#endif
