/* rules.h - options that loosen the verifier's rules, the same in every command that loads a probe.
 */
#ifndef EGPU_CLI_RULES_H
#define EGPU_CLI_RULES_H

#include "cli/cli.h"
#include "verifier/verifier.h"

struct rules_opts {
	const char *max_insns, *max_local; /* numbers as given; NULL: the default */
	bool allow_perturb, allow_races;
};

/* Rows of a command's option table. */
#define RULES_OPTIONS(opts, field)                                                                 \
	{ 0, "max-insns", OPT_STRING, offsetof(opts, field.max_insns), "N",                        \
		"instructions that one run of a program may take (default 65536)" },               \
		{ 0, "max-local", OPT_STRING, offsetof(opts, field.max_local), "BYTES",            \
			"local memory of each thread that a program may need (default 1024)" },    \
		{ 0, "allow-perturb", OPT_FLAG, offsetof(opts, field.allow_perturb), NULL,         \
			"let programs delay, trap or end the threads they probe" },                \
	{                                                                                          \
		0, "allow-races", OPT_FLAG, offsetof(opts, field.allow_races), NULL,               \
			"let programs update shared memory without atomics, and lose updates"      \
	}

/* 0, or EGPU_FAILED after a message. */
int rules_read(const struct rules_opts *o, struct verifier_options *out);

#endif
