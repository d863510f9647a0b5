/* probe.h - a BPF object opened, checked, loaded and attached: what run, verify, translate and
 * instrument share.
 *
 * There is one loader in a process (syscall/loader.h), so there is one probe at a time.
 */
#ifndef EGPU_CLI_PROBE_H
#define EGPU_CLI_PROBE_H

#include <bpf/libbpf.h>

#include "base/buf.h"
#include "cli/cli.h"
#include "map/session.h"
#include "syscall/loader.h"

struct tool;

struct probe_options {
	const char *name;    /* as the user wrote it: tool, .bpf.o or .bpf.c */
	const char *pattern; /* -k, NULL: none; kernels of programs whose section names none */
	const struct opt_list *set; /* VAR=VALUE, may be NULL */
	struct verifier_options rules; /* of the verifier, log_level included */
	bool live;    /* into kernels that run already: the session has guards */
	bool verbose; /* libbpf's messages and the whole verifier log to standard error */
};

struct probe {
	const struct tool *tool; /* NULL: an object of the user's */
	char *bytes;             /* the object file */
	size_t size;
	struct bpf_object *object;
	struct bpf_link **links;
	size_t n_links;
	const struct probe_options *options;
};

/* Finds, compiles where needed, and checks the file: BPF machine, BTF, programs in GPU sections. 0,
 * or EGPU_FAILED after a message. */
int probe_read(struct probe *p, const struct probe_options *o);
/* Starts the loader in the session and opens the object. */
int probe_open(struct probe *p, struct session *s);
/* Verifies and translates every program; a refusal is explained. */
int probe_load(struct probe *p);
/* The two halves of it for programs that are loaded one by one: why bpf_object__load failed, and
 * whether the program takes what its section's point gives. 0, or EGPU_FAILED after a message. */
int probe_load_failed(const struct probe *p, int err);
int probe_check_point(
	const struct probe *p, struct bpf_program *prog, const struct loader_prog *lp);
/* One link a program. */
int probe_attach(struct probe *p);
/* Detaches, closes, stops the loader; what probe_read read stays. */
void probe_close(struct probe *p);
void probe_free(struct probe *p);

/* Names of the object's programs in order; NULL past the last. Needs probe_open. */
struct bpf_program *probe_program(const struct probe *p, size_t i);
/* Message for a program that was refused, with the end of its log. */
void probe_explain(const struct probe *p, const struct loader_prog *prog, bool whole_log);
/* The end of a verifier's log, indented. */
void probe_log_tail(FILE *to, const char *log, bool whole);

#endif
