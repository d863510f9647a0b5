/* rows.c - what the session says of a kernel: its row, its state and its sites. Under agent.build. */
#include <errno.h>
#include <string.h>

#include "agent/agent.h"

static const char *source_of(const struct kernel *k)
{
	return k->unit >= 0 ? k->image->units[k->unit].source : "none";
}

/* The row of what was only a name until now, if there is one: launches of one kernel are counted in one row. */
static void take_nameless_row(struct kernel *k)
{
	struct image *nameless = k->image->n_units ? image_of_name(k->name) : NULL;
	struct kernel *only = nameless ? image_kernel(nameless, k->name) : NULL;
	if (only)
		kernel_take_row(k, only);
}

void kernel_row(struct kernel *k)
{
	bool created;
	uint32_t id;
	if (atomic_load(&agent.late) && k->row == UINT32_MAX)
		take_nameless_row(k);
	if (k->row != UINT32_MAX ||
		session_add_kernel(agent.session, k->image->hash, k->name, &id, &created))
		return;
	if (id >= SESSION_MAX_KERNELS)
		return;
	struct session_kernel *row = &agent.shared->kernels[id];
	k->row = id;
	if (created)
		row->source = session_add_text(agent.session, source_of(k));
	atomic_store(&k->shared, row);
}

void kernel_take_row(struct kernel *k, struct kernel *nameless)
{
	struct session_kernel *row = atomic_load(&nameless->shared);
	if (k->row != UINT32_MAX || nameless->row == UINT32_MAX || !row)
		return;
	k->row = nameless->row;
	row->image_hash = k->image->hash;
	row->source = session_add_text(agent.session, source_of(k));
	atomic_store(&k->shared, row);
	kernel_state(k, SESSION_KERNEL_SEEN, "");
	/* It is matched no more: it counts in the row still, which is another's to write. */
	nameless->row = UINT32_MAX;
	nameless->image->matched = false;
}

bool kernel_borrow_row(struct kernel *nameless)
{
	if (nameless->row != UINT32_MAX || atomic_load(&nameless->shared))
		return nameless->row == UINT32_MAX;
	struct image *im = image_known(nameless->name);
	struct session_kernel *row = im ? atomic_load(&image_kernel(im, nameless->name)->shared) : NULL;
	if (row)
		atomic_store(&nameless->shared, row);
	return row;
}

void kernel_state(struct kernel *k, enum session_kernel_state state, const char *reason)
{
	struct session_kernel *row = k->row != UINT32_MAX ? atomic_load(&k->shared) : NULL;
	if (!row)
		return;
	if (row->state != (uint32_t)state || !row->since_ns)
		row->since_ns = now_ns();
	row->reason = session_add_text(agent.session, reason ? reason : "");
	__atomic_store_n(&row->links,
		state == SESSION_KERNEL_INSTRUMENTED ? atomic_load(&k->links) : 0,
		__ATOMIC_RELAXED);
	__atomic_store_n(&row->state, (uint32_t)state, __ATOMIC_RELEASE);
}

void kernel_refuse(struct kernel *k, const char *reason)
{
	k->refused = arena_strdup(k->image->arena, reason);
	if (!k->refused)
		k->refused = "out of memory";
	atomic_store(&k->wanted, 0);
	kernel_state(k, SESSION_KERNEL_REFUSED, reason);
	agent_log("%s refused: %s", k->name, reason);
}

static uint32_t space_number(enum ptx_space space)
{
	switch (space) {
	case PTX_SPACE_GLOBAL:
		return 1;
	case PTX_SPACE_SHARED:
		return 2;
	case PTX_SPACE_LOCAL:
		return 3;
	case PTX_SPACE_CONST:
		return 4;
	case PTX_SPACE_PARAM:
		return 5;
	case PTX_SPACE_SHARED_CLUSTER:
		return 6;
	default:
		return 0;
	}
}

static void site_row(struct kernel *k, uint32_t id, const struct instrument_site *s)
{
	struct session_site *row = &agent.shared->sites[id];
	*row = (struct session_site){
		.kernel = k->row,
		.point = s->point,
		.ptx_line = s->ptx_line,
		.line = s->line,
		.column = s->column,
		.file = session_add_text(agent.session, s->file ? s->file : ""),
		.opcode = session_add_text(agent.session, s->opcode ? s->opcode : ""),
		.function = session_add_text(agent.session, s->function ? s->function : ""),
		.skipped = session_add_text(agent.session, s->skipped ? s->skipped : ""),
		.space = space_number(s->space),
		.bytes = s->bytes,
	};
}

bool sites_placed(const struct kernel *k, uint64_t links)
{
	return k->has_sites && k->site_links == links;
}

/* Site ids are taken once for a kernel of the session; another process with the same image shares
 * them. */
int sites_place(struct kernel *k, uint64_t links, const struct instrument_site *sites, uint32_t n, struct diag *d)
{
	uint32_t first = 0;
	struct session_kernel *row = atomic_load(&k->shared);
	if (row && __atomic_load_n(&row->n_sites, __ATOMIC_ACQUIRE) == n && n &&
		row->first_site <= SESSION_MAX_SITES - n) {
		k->first_site = row->first_site;
	} else {
		if (n && session_add_sites(agent.session, n, &first))
			return diag_set(d, ENOSPC, "the session has no room for %u more sites", n);
		k->first_site = first;
		for (uint32_t i = 0; i < n; i++)
			site_row(k, first + i, &sites[i]);
		if (row) {
			row->first_site = first;
			__atomic_store_n(&row->n_sites, n, __ATOMIC_RELEASE);
		}
	}
	k->n_sites = n;
	k->has_sites = true;
	k->site_links = links;
	return 0;
}

/* The first of its ids, as far as that can be told before its sites are known. */
uint32_t sites_likely_first(const struct kernel *k, uint64_t links)
{
	const struct session_kernel *row = atomic_load(&k->shared);
	if (sites_placed(k, links))
		return k->first_site;
	if (row && __atomic_load_n(&row->n_sites, __ATOMIC_ACQUIRE))
		return row->first_site;
	return __atomic_load_n(&agent.shared->n_sites, __ATOMIC_ACQUIRE);
}

/* What only the instrumenter knows: which sites stay without probes. */
void sites_mark_skipped(const struct kernel *k, const struct instrument_result *r)
{
	for (uint32_t i = 0; i < r->n_sites; i++)
		if (r->sites[i].ordinal < k->n_sites)
			agent.shared->sites[k->first_site + r->sites[i].ordinal].skipped =
				session_add_text(agent.session,
					r->sites[i].skipped ? r->sites[i].skipped : "");
}
