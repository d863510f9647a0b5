/* filter.h - options that choose launches, the same in every command that probes a program. */
#ifndef EGPU_CLI_FILTER_H
#define EGPU_CLI_FILTER_H

#include "base/buf.h"
#include "cli/cli.h"
#include "map/session.h"

struct filter_opts {
	const char *skip, *launches, *duration, *device, *stream, *max_overhead, *sample_warps, *seed; /* as given; NULL: all */
};

/* Rows of a command's option table. */
#define SAMPLE_OPTIONS(opts, field)                                                                \
	{ 0, "max-overhead", OPT_STRING, offsetof(opts, field.max_overhead), "P%",                 \
		"probe so few warps of a kernel that it slows down by no more" },                  \
		{ 0, "sample-warps", OPT_STRING, offsetof(opts, field.sample_warps), "N",          \
			"probe one in N warps; what is added counts N times" },                    \
	{                                                                                          \
		0, "seed", OPT_STRING, offsetof(opts, field.seed), "N",                            \
			"which warps those are: the same for the same number"                      \
	}
#define FILTER_OPTIONS(opts, field)                                                                \
	{ 0, "skip", OPT_STRING, offsetof(opts, field.skip), "N",                                  \
		"let the first N launches of matching kernels run unprobed" },                     \
		{ 0, "launches", OPT_STRING, offsetof(opts, field.launches), "N",                  \
			"probe N launches, then no more" },                                        \
		{ 0, "for", OPT_STRING, offsetof(opts, field.duration), "TIME",                    \
			"probe for so long from the first probed launch on: 10, 500ms, 2m" },      \
		SAMPLE_OPTIONS(opts, field),                                                       \
		{ 0, "device", OPT_STRING, offsetof(opts, field.device), "N",                      \
			"probe on this device only" },                                             \
	{                                                                                          \
		0, "stream", OPT_STRING, offsetof(opts, field.stream), "N",                        \
			"probe in this stream only: 0 the default one, N the N-th other used"      \
	}

/* --for: "10" and "10s", "500ms", "2m", fractions too. NULL: 0. 0, or EGPU_FAILED after a message. */
int filter_duration(const char *text, uint64_t *ns);
/* 0, or EGPU_FAILED after a message. *out is ready to be copied into a session. */
int filter_read(const struct filter_opts *o, struct session_filter *out);
/* Where the program will find so many devices: 0, or EGPU_FAILED after a message that the one which was asked for is not among them. */
int filter_check_device(const struct session_filter *f, int n_devices);
/* Whether a filter leaves anything out: what its `active` is to be. */
bool filter_chooses(const struct session_filter *f);
/* Whether such options were given with --live, with a message. */
bool filter_samples_live(const struct filter_opts *o, bool live);
/* Before the target starts. */
void filter_apply(struct session *s, const struct session_filter *f);
/* One line that says what was chosen; nothing without a filter. */
void filter_text(const struct session_filter *f, struct buf *text);

#endif
