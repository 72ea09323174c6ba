/* journal_command.h: attnd journal check|salvage DIR: what a state directory holds, and what can be
 * saved of its damaged files. */
#ifndef SRV_JOURNAL_COMMAND_H
#define SRV_JOURNAL_COMMAND_H

/* Takes the arguments that follow `journal`; returns the exit status: 0 all is whole, or was saved;
 * 1 something is damaged, or could not be read or saved, with a line on standard error; 2 the
 * arguments or the configuration are wrong. */
int srv_command_journal(int argc, char *const argv[]);

#endif
