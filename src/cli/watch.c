/* watch.c - see watch.h. */
#include "cli/watch.h"

#include <stdlib.h>

#include "cli/cli.h"
#include "cli/names.h"
#include "cli/trace.h"

enum { NAME_WIDTH = 100 };

/* Record of trace_printk, as translate/helper.c writes it. */
struct trace_record {
	uint32_t format_bytes, n_args;
	uint64_t args[3];
	char format[];
};

static int trace_line(void *arg, const void *data, uint32_t bytes)
{
	struct watch *w = arg;
	const struct trace_record *r = data;
	struct buf line = { 0 };
	if (bytes < sizeof(*r) || r->format_bytes > bytes - sizeof(*r))
		return 0;
	trace_format(r->format, r->format_bytes, r->args, r->n_args < 3 ? r->n_args : 3, &line);
	while (line.len && line.data[line.len - 1] == '\n')
		line.data[--line.len] = 0;
	say("trace: %s", line.data ? line.data : "");
	buf_free(&line);
	w->lines++;
	return 0;
}

static void find_trace(struct watch *w)
{
	const struct session_file *f = session_data(w->session);
	for (uint32_t id = 0; id < EBPF_MAX_MAPS; id++)
		if (f->maps[id].used && f->maps[id].internal &&
			f->maps[id].owner == session_client_number(w->session) &&
			f->maps[id].type == BPF_MAP_TYPE_RINGBUF)
			map_open(w->session, id, &w->trace, NULL);
}

/* Agents store it when they have made the variant, before it is loaded. */
static void say_estimates(struct watch *w)
{
	const struct session_file *f = session_data(w->session);
	uint32_t n = __atomic_load_n(&f->n_kernels, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; w->told && i < n && i < SESSION_MAX_KERNELS; i++) {
		const struct session_kernel *k = &f->kernels[i];
		uint64_t now = __atomic_load_n(&k->estimate_ppm, __ATOMIC_ACQUIRE);
		if (!now || now == w->told[i])
			continue;
		w->told[i] = now;
		struct arena *a = arena_new();
		if (a)
			say("estimate: %s will take about %.2f times as long, as a rule between %.2f and %.2f",
				name_short(a, session_text(w->session, k->name), NAME_WIDTH), (double)now / 1e6,
				(double)k->estimate_least_ppm / 1e6, (double)k->estimate_most_ppm / 1e6);
		arena_free(a);
	}
}

void watch_tick(void *arg)
{
	struct watch *w = arg;
	say_estimates(w);
	if (w->trace)
		map_ring_consume(w->trace, trace_line, w);
	dump_drain_rings(w->dump);
}

void watch_end(struct watch *w)
{
	watch_tick(w);
	uint64_t lost = w->trace ? map_lost(w->trace) : 0;
	if (lost)
		say("trace: %llu lines lost because they came faster than they could be taken",
			(unsigned long long)lost);
	map_close(w->trace);
	w->trace = NULL;
}

int watch_begin(struct watch *w, struct session *s, bool estimates)
{
	*w = (struct watch){ .session = s, .dump = dump_new(s) };
	if (!w->dump)
		return say_fail("out of memory");
	if (estimates)
		w->told = calloc(SESSION_MAX_KERNELS, sizeof(*w->told));
	find_trace(w);
	return 0;
}

void watch_free(struct watch *w)
{
	dump_free(w->dump);
	w->dump = NULL;
	free(w->told);
	w->told = NULL;
}
