#include "verifier/verifier.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "verifier/state.h"

int refuse(struct verifier *v, int err, const char *tag, const char *fmt, ...)
{
	if (v->err) /* the first one sticks; a second walk for the log changes nothing */
		return -v->err;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(v->reason, sizeof(v->reason), fmt, ap);
	va_end(ap);
	v->err = err;
	v->out->tag = tag;
	v->out->failed_insn = v->cur.insn;
	return -err;
}

int out_of_memory(struct verifier *v)
{
	return refuse(v, ENOMEM, "memory", "out of memory");
}

static int prove(struct verifier *v)
{
	int err = check_encoding(v);
	if (!err)
		err = check_layout(v);
	if (!err)
		err = find_live(v);
	if (!err)
		err = explore(v);
	if (!err) {
		v->path_insns = 0; /* what is refused from here on belongs to no path */
		err = check_stack_depth(v);
	}
	if (!err)
		err = find_uniform(v);
	return err;
}

static int prepare(struct verifier *v)
{
	size_t n = v->p->n_insns && v->p->n_insns <= EBPF_MAX_INSNS ? v->p->n_insns : 1;
	if (!v->opts.max_states_insns)
		v->opts.max_states_insns = 1000000;
	if (!v->opts.max_run_insns)
		v->opts.max_run_insns = 65536;
	v->out->max_local_bytes = v->opts.max_local_bytes ? v->opts.max_local_bytes : 1024;
	v->out->allow_races = v->opts.allow_races;
	v->out->facts = arena_array(v->arena, n, sizeof(*v->out->facts));
	v->saved = arena_array(v->arena, n, sizeof(*v->saved));
	if (!v->out->facts || !v->saved)
		return out_of_memory(v);
	for (size_t k = 0; k < n; k++)
		v->out->facts[k].map = -1;
	return 0;
}

static void release_all(struct verifier *v)
{
	free_saved(v);
	while (v->n_pending)
		free(v->pending[--v->n_pending].state);
	free(v->pending);
	free(v->decisions);
	free(v->nodes);
	free(v->marks);
	free(v->mark_stack);
	drop_widened(v, 0);
	free(v->widened);
	buf_free(&v->trail);
	free(v);
}

int verifier_check(struct arena *arena, const struct ebpf_program *p, const struct verifier_options *opts,
	struct verifier_result *out, struct buf *log, struct diag *d)
{
	struct verifier *v = calloc(1, sizeof(*v));
	*out = (struct verifier_result){ 0 };
	if (!v)
		return diag_set(d, ENOMEM, "out of memory");
	v->arena = arena;
	v->p = p;
	v->out = out;
	v->log = log;
	v->d = d;
	if (opts)
		v->opts = *opts;
	int err = prepare(v);
	if (!err)
		err = prove(v);
	if (err)
		log_failure(v);
	else
		log_success(v);
	release_all(v);
	return err;
}
