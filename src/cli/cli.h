/* cli.h - what every command of `egpu` shares: its table row, options, messages.
 *
 * A command is one file and one row: name, options table, help text. Parsing and --help both derive
 * from that row. Exit status: 0, the target command's own, 1 where a command's answer is "no"
 * (a refused program), EGPU_FAILED for failures of egpu itself.
 */
#ifndef EGPU_CLI_CLI_H
#define EGPU_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/diag.h"

enum { EGPU_FAILED = 125 };

enum opt_kind {
	OPT_FLAG,   /* bool: given */
	OPT_COUNT,  /* int: times given */
	OPT_STRING, /* const char *: the value; given twice, the last counts */
	OPT_MAYBE,  /* struct opt_maybe: --name or --name=VALUE */
	OPT_LIST,   /* struct opt_list: every value */
};

struct opt_maybe {
	bool given;
	const char *value; /* NULL without one */
};

struct opt_list {
	const char **values;
	size_t n;
};

struct opt {
	char letter;      /* 0: none */
	const char *name; /* without dashes; NULL: only the letter */
	enum opt_kind kind;
	size_t offset;     /* of the field in the command's options struct */
	const char *value; /* metavariable for --help */
	const char *help;
};

/* What is left after the options. All pointers lead into argv. */
struct opt_rest {
	const char **args; /* before `--` */
	int n_args;
	char **command; /* after `--`, NULL-terminated; NULL when there was no `--` */
	int n_command;
};

struct command {
	const char *name, *synopsis, *summary;
	const char *help;       /* paragraphs and examples, shown below the options */
	const struct opt *opts; /* ends with a zeroed row; NULL: none */
	size_t opts_bytes;      /* size of the options struct */
	int (*run)(const void *opts, const struct opt_rest *rest); /* returns the exit status */
	int min_args, max_args;                                    /* before `--` */
};

/* Parses argv (after the command's name) into *opts, which is zeroed. 0; 1 when --help was printed;
 * -1 after a message. The lists and *rest are freed by opt_free. */
int opt_parse(const struct command *cmd, int argc, char **argv, void *opts, struct opt_rest *rest);
void opt_free(const struct command *cmd, void *opts, struct opt_rest *rest);
void opt_help(const struct command *cmd, FILE *to);

/* "egpu: ..." on standard error. say_fail and say_diag return EGPU_FAILED. */
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
int say_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* "egpu: WHAT: line L, column C: d's text" */
int say_diag(const char *what, const struct diag *d);

/* Reads a file, at most max bytes, with a NUL after it. -errno with d (ENOENT, EFBIG, EISDIR, ...).
 */
int read_file(const char *path, size_t max, char **data, size_t *size, struct diag *d);

struct buf;
/* Writes text to a file ("-": standard output), or to `otherwise` when path is NULL. 0, EGPU_FAILED
 * after a message. */
int write_out(const char *path, FILE *otherwise, const struct buf *text);
/* Whether write_out to this path (NULL, "-": yes) would work now; makes nothing. 0, EGPU_FAILED
 * after a message. */
int check_out(const char *path);

extern const struct command cmd_attach, cmd_detach, cmd_link, cmd_ps, cmd_off, cmd_gc;
extern const struct command cmd_run, cmd_list, cmd_doctor, cmd_verify, cmd_translate,
	cmd_instrument, cmd_test_run, cmd_map, cmd_tools;

#endif
