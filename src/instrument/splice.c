/* splice.c - requires sites and bound symbols; leaves edits that put the fragments at their sites.
 *
 * At a site:
 *	{
 *		declarations
 *		@!guard bra $egpu_end;      where the instruction has a guard
 *		inputs
 *		{ fragment }
 *		@%egpu_xe bra $egpu_w;      where one elected lane runs the fragment
 *		{ fragment }
 *	$egpu_w:
 *	$egpu_end:
 *		bar.warp.sync               where lanes may have parted; a branch behind it that none takes begins the site
 *	$egpu_met:
 *	}
 */
#include <errno.h>
#include <string.h>

#include "instrument/variant.h"

struct splicer {
	struct variant *v;
	const struct instrument_request *req;
	struct instrument_result *out;
	bool launch_in_calls;
	bool *parts; /* by fragment: its lanes may be apart behind it */
	struct products *products; /* by place */
};

static bool fits_point(const struct ebpf_fragment *f, enum ebpf_point point)
{
	bool is_mem =
		point == EBPF_POINT_LOAD || point == EBPF_POINT_STORE || point == EBPF_POINT_ATOMIC;

	return f->point == point || (f->point == EBPF_POINT_MEM && is_mem) ||
	       (f->point == EBPF_POINT_ACCESS && is_mem && point != EBPF_POINT_ATOMIC);
}

static bool fits_opcode(const struct splicer *s, const struct ebpf_fragment *f, uint32_t site)
{
	const struct spot *spot = &s->v->spots[site];

	return f->point != EBPF_POINT_INSN ||
	       opcode_matches(f, spot->place->func->stmts[spot->stmt].insn->opcode);
}

/* A batch has its record. */
static bool in_batch(const struct splicer *s, const struct ebpf_fragment *f, uint32_t site)
{
	return s->v->spots[site].batched == f;
}

/* A call that would do nothing. What stands inline vanishes. */
static bool is_idle(const struct splicer *s, const struct ebpf_fragment *f, uint32_t site)
{
	return is_called(s->v, f) && !acts_at(s->v, f, site);
}

/* A called function does not see the kernel's parameters. */
static bool runs_at(const struct splicer *s, const struct ebpf_fragment *f, uint32_t site)
{
	return !in_batch(s, f, site) && !is_idle(s, f, site) && fits_point(f, s->v->sites[site].point) && fits_opcode(s, f, site) && !(is_guard(f) && s->v->sites[site].unguarded) &&
	       (s->v->spots[site].place->is_kernel || !f->n_params);
}

bool fragment_runs_at(struct variant *v, const struct ebpf_fragment *f, uint32_t site)
{
	struct splicer s = { .v = v };

	return runs_at(&s, f, site);
}

static bool check_param(
	const struct splicer *s, const struct ebpf_fragment *f, const struct ebpf_fragment_param *p)
{
	const struct ptx_func *k = s->v->kernel;

	s->v->err = -EINVAL;
	if (p->index >= k->n_params) {
		diag_set(s->v->d, EINVAL, "%s reads parameter %u, but '%s' has %u", f->name,
			p->index, k->name, k->n_params);
		return false;
	}
	if (k->params[p->index].size_bytes != p->bytes) {
		diag_set(s->v->d, EINVAL,
			"%s reads parameter %u as %u bytes, but that of '%s' has %llu", f->name,
			p->index, p->bytes, k->name,
			(unsigned long long)k->params[p->index].size_bytes);
		return false;
	}
	s->v->err = 0;
	return true;
}

static bool check_fragments(const struct splicer *s)
{
	for (uint32_t i = 0; i < s->req->n_fragments; i++) {
		const struct ebpf_fragment *f = s->req->fragments[i];
		for (uint32_t k = 0; k < f->n_params; k++) {
			if (!check_param(s, f, &f->params[k]))
				return false;
		}
	}
	return true;
}

/* -- one site -- */

struct merged {
	uint64_t fields, gathered;
	uint32_t n, local_bytes; /* without what is gathered */
	uint32_t n_sampled;
	bool warp, slot;
};

static struct merged merge(const struct splicer *s, uint32_t site)
{
	struct merged m = { 0 };

	for (uint32_t i = 0; i < s->req->n_fragments; i++) {
		const struct ebpf_fragment *f = s->req->fragments[i];
		if (!runs_at(s, f, site))
			continue;
		m.n++;
		m.fields |= (is_called(s->v, f) ? call_fields(f) : f->fields) | f->gathered;
		m.gathered |= f->gathered;
		m.warp |= f->warp;
		m.slot |= f->slot;
		m.n_sampled += f->sampled;
		m.local_bytes += is_called(s->v, f) ? 0 : f->local_bytes - ebpf_lane_bytes(f->gathered);
	}
	return m;
}

/* Parameters that fragments read here, each once. */
static void emit_params(const struct splicer *s, uint32_t site, struct buf *b)
{
	uint64_t done = 0;

	for (uint32_t i = 0; i < s->req->n_fragments; i++) {
		const struct ebpf_fragment *f = s->req->fragments[i];
		for (uint32_t k = 0; runs_at(s, f, site) && k < f->n_params; k++) {
			const struct ebpf_fragment_param *p = &f->params[k];
			if (done >> (p->index & 63) & 1)
				continue;
			done |= UINT64_C(1) << (p->index & 63);
			buf_printf(b, "\t.reg .b64 %%egpu_param%u;\n", p->index);
			buf_printf(b, "\tld.param.u%u %%egpu_param%u, [%s];\n", p->bytes * 8,
				p->index, s->v->kernel->params[p->index].name);
		}
	}
}

/* Where all that runs here is sampled, the others do not even come here. (In a function of two versions all are.) */
static void emit_fragments(const struct splicer *s, uint32_t site, const struct merged *m, bool repeat, struct buf *b)
{
	for (uint32_t i = 0; i < s->req->n_fragments; i++) {
		const struct ebpf_fragment *f = s->req->fragments[i];
		if (!runs_at(s, f, site))
			continue;
		bool skips = f->sampled && m->n_sampled < m->n;
		if (f->warp)
			buf_printf(b, "\t@%%egpu_xe bra $egpu_w%u_%u;\n", site, i);
		if (skips)
			buf_printf(b, "\t@!%" CHOSEN_REG " bra.uni $egpu_w%u_%u;\n", site, i);
		if (!repeat && is_called(s->v, f))
			emit_call(s->v, f, b);
		else
			ebpf_fragment_text(repeat ? f->repeat : f->body, s->v->target.version, s->v->target.sm, b);
		buf_puts(b, "\n");
		if (f->warp || skips)
			buf_printf(b, "$egpu_w%u_%u:\n", site, i);
	}
}

static bool has_loop(const char *body)
{
	char label[64] = "\n";

	for (const char *p = body; (p = strstr(p, "bra")); p++) {
		const char *to = strchr(p, '$');
		size_t n = to ? strcspn(to, ";\n") : 0;
		if (!n || n > sizeof(label) - 3)
			continue;
		memcpy(label + 1, to, n);
		strcpy(label + 1 + n, ":");
		const char *at = strstr(body, label);
		if (at && at < p)
			return true;
	}
	return false;
}

/* Whether the lanes that come to a fragment may be apart behind it: ptxas has a lane that waits for memory, or goes round a loop, yield to others, and
 * lets those that wait for it where the ways join go on. Kernels that hand data over within a warp without saying so would then see old values. A
 * fragment that only adds keeps its lanes together. */
static bool may_part(const struct ebpf_fragment *f)
{
	static const char *const waits[] = { "atom.", "ld.volatile", "ld.relaxed", "ld.acquire", "call", "nanosleep" };

	if (is_guard(f))
		return false;
	bool parts = f->warp;
	for (size_t i = 0; i < sizeof(waits) / sizeof(waits[0]) && !parts; i++)
		parts = strstr(f->body, waits[i]);
	return parts || has_loop(f->body);
}

static bool any_may_part(const struct splicer *s, uint32_t site)
{
	for (uint32_t i = 0; s->v->target.activemask && s->v->target.sm >= 70 && i < s->req->n_fragments; i++)
		if (s->parts[i] && runs_at(s, s->req->fragments[i], site))
			return true;
	return false;
}

/* The lanes that come to a site together, and a branch around it that none of them takes. The barrier at its end alone does not bring them together:
 * where a kernel has more than one, ptxas writes BRA.DIV around a WARPSYNC.COLLECTIVE, behind which each lane goes on as it came. But ptxas also has the
 * lanes that are here at a branch wait for each other where its ways join (BSSY, BSYNC), and behind the barrier none is left that could be let go. */
static void emit_coming(uint32_t site, struct buf *b)
{
	buf_printf(b,
		"\t.reg .b32 %%egpu_came, %%egpu_own;\n\t.reg .pred %%egpu_away;\n\tactivemask.b32 %%egpu_came;\n"
		"\tmov.u32 %%egpu_own, %%lanemask_eq;\n\tand.b32 %%egpu_own, %%egpu_own, %%egpu_came;\n"
		"\tsetp.eq.u32 %%egpu_away, %%egpu_own, 0;\n\t@%%egpu_away bra $egpu_met%u;\n",
		site);
}

/* The cp.async at a site, or NULL. */
static const struct ptx_insn *copied(const struct spot *spot)
{
	const struct ptx_insn *insn = insn_at(spot->place->func, spot->stmt);

	return insn && !strcmp(insn->base, "cp") ? insn : NULL;
}

/* The instruction whose guard decides which lanes are here: a block's entry and a branch are
 * reached by all. */
static const struct ptx_insn *guarded(const struct splicer *s, uint32_t site)
{
	const struct spot *spot = &s->v->spots[site];
	enum ebpf_point point = s->v->sites[site].point;
	const struct ptx_insn *insn = insn_at(spot->place->func, spot->stmt);

	if (point == EBPF_POINT_BLOCK || point == EBPF_POINT_BRANCH)
		return NULL;
	return insn && insn->pred ? insn : NULL;
}

/* Past the probe: warps that are not chosen, where they come here, and lanes that the guard keeps from the instruction. */
static void emit_who_passes(bool asks, const struct ptx_insn *guard, uint32_t site, struct buf *b)
{
	if (asks)
		buf_printf(b, "\t@!%" CHOSEN_REG " bra.uni $egpu_end%u;\n", site);
	if (guard)
		buf_printf(b, "\t@%s%s bra $egpu_end%u;\n", guard->pred_negated ? "" : "!", guard->pred, site);
}

/* cp.async may be told at run time to read fewer bytes than it writes, and then usually none at
 * all: those lanes do not touch the source. The size is a 32-bit register, the other form a
 * predicate; a 64-bit one is a cache policy. */
static void emit_copy_guard(const struct spot *spot, uint32_t site, struct buf *b)
{
	const struct ptx_insn *insn = copied(spot);
	const struct ptx_operand *op = insn && insn->n_operands > 3 ? &insn->operands[3] : NULL;

	if (!op || spot->access.size >= 0 || op->kind != PTX_OPERAND_REG || !op->reg ||
		op->component >= 0)
		return;
	if (op->reg->type.kind == 'p')
		buf_printf(b, "\t@%s%s bra $egpu_end%u;\n", op->negated ? "!" : "", op->name, site);
	else if (op->reg->type.bits == 32)
		buf_printf(b, "\tsetp.eq.u32 %%egpu_xp1, %s, 0;\n\t@%%egpu_xp1 bra $egpu_end%u;\n",
			op->name, site);
}

/* ldmatrix.x1 reads at the addresses of eight lanes; the others' mean nothing. */
static void emit_lane_guard(const struct spot *spot, uint32_t site, struct buf *b)
{
	if (spot->access.lanes)
		buf_printf(b,
			"\tmov.u32 %%egpu_xt1, %%laneid;\n"
			"\tsetp.ge.u32 %%egpu_xp1, %%egpu_xt1, %u;\n\t@%%egpu_xp1 bra "
			"$egpu_end%u;\n",
			spot->access.lanes, site);
}

static struct inputs site_inputs(const struct splicer *s, uint32_t site, const struct merged *m)
{
	return (struct inputs){ .v = s->v,
		.fields = m->fields,
		.gathered = m->gathered,
		.warp = m->warp,
		.site = s->req->first_site + site,
		.kernel_id = s->req->kernel_id,
		.spot = &s->v->spots[site],
		.ordinal = site };
}

/* Before a load whose end is observed: what the probe behind it must know. */
static bool keep_before(struct splicer *s, uint32_t site, const struct merged *m)
{
	struct variant *v = s->v;
	const struct spot *spot = &v->spots[site];
	struct inputs in = site_inputs(s, site, m);
	struct place *place = spot->place;
	struct buf b = { 0 };

	if (!inputs_keep(&in))
		return true;
	buf_printf(&b, "{ // egpu site %u\n", in.site);
	emit_kept(&in, &b);
	buf_puts(&b, "}\n\t");
	char *text = b.failed ? NULL : arena_strdup(v->arena, b.data);
	buf_free(&b);
	if (!text)
		return no_memory(v);
	ptx_edit_insert(&v->edits, insert_point(v, place->func, spot->stmt), text);
	if (!place->keeps)
		ptx_edit_insert(
			&v->edits, place->func->body.begin + 1, "\n\t.reg .b64 " KEEP_REGS ";\n");
	place->keeps = true;
	return true;
}

/* For the lanes that the guard lets through. */
static char *site_text(const struct splicer *s, uint32_t site, const struct merged *m, const struct ptx_insn *guard)
{
	const struct spot *spot = &s->v->spots[site];
	bool copies = copied(spot) && spot->access.op != PTX_ACCESS_NONE;
	bool asks = m->n_sampled == m->n && !spot->place->split, meets = any_may_part(s, site);
	struct inputs in = site_inputs(s, site, m);
	struct buf b = { 0 };
	char *text = NULL;

	buf_printf(&b, "{ // egpu site %u\n", in.site);
	emit_declarations(&in, &b);
	if (meets)
		emit_coming(in.site, &b);
	if (spot->held)
		emit_held(spot->held, site, &b);
	emit_who_passes(asks, guard, site, &b);
	if (copies)
		emit_copy_guard(spot, site, &b);
	emit_lane_guard(spot, site, &b);
	emit_inputs(&in, &b);
	emit_params(s, site, &b);
	emit_fragments(s, site, m, false, &b);
	if (asks || guard || copies || spot->access.lanes || (spot->held && spot->held->n))
		buf_printf(&b, "$egpu_end%u:\n", site);
	if (meets)
		buf_printf(&b, "\tbar.warp.sync %%egpu_came;\n$egpu_met%u:\n", in.site);
	buf_puts(&b, "}\n\t");
	if (!b.failed)
		text = arena_strdup(s->v->arena, b.data);
	buf_free(&b);
	return text;
}

static bool insert_text(struct variant *v, uint32_t at, const char *text)
{
	if (!text)
		return no_memory(v);
	ptx_edit_insert(&v->edits, at, text);
	return true;
}

/* At one offset: what ends before what begins, a block before its instructions. */
static uint32_t turn(enum ebpf_point point)
{
	return point == EBPF_POINT_LOAD_DONE ? 0
	       : point == EBPF_POINT_BLOCK   ? 1
	       : point <= EBPF_POINT_MEM     ? 2
					     : 3;
}

/* -- several sites -- */

/* Sites with the same programs, which go to the same places. */
struct group {
	uint32_t sites[MAX_FAN], counter[MAX_FAN], n;
	const char *inputs[MAX_FAN];
	uint32_t counters; /* a bit each */
	uint32_t words;	   /* of a site */
};

static bool same_programs(const struct splicer *s, uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < s->req->n_fragments; i++)
		if (runs_at(s, s->req->fragments[i], a) != runs_at(s, s->req->fragments[i], b))
			return false;
	return turn(s->v->sites[a].point) == turn(s->v->sites[b].point);
}

static bool all_repeat(const struct splicer *s, uint32_t site)
{
	for (uint32_t i = 0; i < s->req->n_fragments; i++)
		if (runs_at(s, s->req->fragments[i], site) && !s->req->fragments[i]->repeat)
			return false;
	return true;
}

static bool same_leaves(const struct place *p, uint32_t a, uint32_t b)
{
	for (uint32_t i = 0; i < p->n_leaves; i++)
		if ((p->leaves[i].counters >> a ^ p->leaves[i].counters >> b) & 1)
			return false;
	return true;
}

/* Whether the programs of site b can stand with those of a. */
static bool stand_together(const struct splicer *s, uint32_t a, uint32_t b)
{
	const struct spot *x = &s->v->spots[a], *y = &s->v->spots[b];

	if (x->place != y->place || y->spliced || s->v->sites[b].skipped || !x->counter != !y->counter || !same_programs(s, a, b))
		return false;
	if (x->counter)
		return same_leaves(x->place, x->counter - 1, y->counter - 1);
	return y->moved && x->at == y->at && !(y->held && y->held->n);
}

static bool add_to(const struct splicer *s, struct group *g, uint32_t site, const struct merged *m)
{
	struct inputs in = site_inputs(s, site, m);
	struct buf b = { 0 }, all = { 0 };
	uint32_t k = g->n, counter = s->v->spots[site].counter;
	bool good;

	emit_inputs(&in, &b);
	const char *text = b.failed ? NULL : arena_strdup(s->v->arena, b.data ? b.data : "");
	buf_free(&b);
	if (!text)
		return no_memory(s->v);
	/* Counters in rising order. */
	for (; counter && k && g->counter[k - 1] > counter - 1; k--) {
		g->sites[k] = g->sites[k - 1];
		g->counter[k] = g->counter[k - 1];
		g->inputs[k] = g->inputs[k - 1];
	}
	g->sites[k] = site;
	g->counter[k] = counter ? counter - 1 : 0;
	g->inputs[k] = text;
	good = fan_inputs(g->inputs, g->n + 1, &all);
	buf_free(&all);
	if (!good) {
		for (; k < g->n; k++) {
			g->sites[k] = g->sites[k + 1];
			g->counter[k] = g->counter[k + 1];
			g->inputs[k] = g->inputs[k + 1];
		}
		return true;
	}
	g->n++;
	g->counters |= counter ? 1u << (counter - 1) : 0;
	return true;
}

static bool find_group(const struct splicer *s, uint32_t site, const struct merged *m, struct group *g)
{
	const struct variant *v = s->v;

	*g = (struct group){ .words = 1 };
	for (uint32_t i = 0; i < s->req->n_fragments; i++)
		if (runs_at(s, s->req->fragments[i], site) && s->req->fragments[i]->words > g->words)
			g->words = s->req->fragments[i]->words;
	if (!add_to(s, g, site, m))
		return false;
	for (uint32_t i = site + 1; i < v->n_sites && v->spots[i].place == v->spots[site].place && g->n < MAX_FAN; i++)
		if (stand_together(s, site, i) && !add_to(s, g, i, m))
			return false;
	return true;
}

static char *group_text(const struct splicer *s, const struct group *g, const struct merged *m, const struct ptx_insn *guard)
{
	uint32_t site = g->sites[0];
	struct inputs in = site_inputs(s, site, m);
	struct buf b = { 0 };
	char *text = NULL;

	buf_printf(&b, "{ // egpu site %u\n", in.site);
	emit_declarations(&in, &b);
	fan_declare(&b);
	emit_who_passes(m->n_sampled == m->n && !in.spot->place->split, guard, site, &b);
	if (g->counters)
		fan_counters(s->v, fan_sums(s->v, m->fields), g->counters, &b);
	else
		fan_lanes(s->v, &b);
	buf_printf(&b, "$egpu_loop%u:\n\tsetp.ge.u32 %%egpu_xp1, %%egpu_turn, %u;\n\t@%%egpu_xp1 bra $egpu_end%u;\n", site, g->n * g->words, site);
	fan_turn(g->words, &b);
	if (!fan_inputs(g->inputs, g->n, &b))
		b.failed = true;
	if (g->counters)
		fan_passes(g->counter, g->n, &b);
	else
		buf_puts(&b, "\tcvt.u64.u32 %egpu_passes, %egpu_step;\n");
	emit_fragments(s, site, m, true, &b);
	buf_printf(&b, "\tadd.u32 %%egpu_turn, %%egpu_turn, %%egpu_step;\n\tbra $egpu_loop%u;\n$egpu_end%u:\n}\n\t", site, site);
	if (!b.failed)
		text = arena_strdup(s->v->arena, b.data);
	buf_free(&b);
	return text;
}

/* Passes by each block are counted, and the probes stand where the thread leaves. */
static bool splice_counted(struct splicer *s, const struct group *g, const struct merged *m)
{
	struct variant *v = s->v;
	struct place *place = v->spots[g->sites[0]].place;

	for (uint32_t c = 0; c < place->n_counters; c++)
		if (g->counters >> c & ~place->counted >> c & 1)
			ptx_edit_insert(&v->edits, place->count_at[c],
				arena_printf(v->arena, "{ // egpu site %u\n\tadd.s64 %" COUNT_REG "%u, %" COUNT_REG "%u, 1;\n}\n\t",
					s->req->first_site + g->sites[0], c, c));
	place->counted |= g->counters;
	for (uint32_t i = 0; i < place->n_leaves; i++) {
		const struct leave *leave = &place->leaves[i];
		const struct ptx_insn *guard = insn_at(place->func, leave->stmt);
		if (leave->counters & g->counters && !insert_text(v, leave->at, group_text(s, g, m, guard)))
			return false;
	}
	return true;
}

/* False: nothing was done; *failed: memory is out. */
static bool splice_group(struct splicer *s, uint32_t site, const struct merged *m, bool *failed)
{
	struct variant *v = s->v;
	struct spot *spot = &v->spots[site];
	struct group g;

	*failed = false;
	if (!spot->counter && (!spot->moved || v->sites[site].point == EBPF_POINT_ENTRY || (spot->held && spot->held->n) ||
				      !all_repeat(s, site) || !fan_fits(v, m->fields)))
		return false;
	*failed = !find_group(s, site, m, &g);
	if (*failed || (!spot->counter && g.n < 2))
		return false;
	*failed = !(spot->counter ? splice_counted(s, &g, m) : insert_text(v, spot->at, group_text(s, &g, m, NULL)));
	for (uint32_t k = 1; k < g.n; k++)
		s->out->n_probed++;
	for (uint32_t k = 0; k < g.n; k++)
		v->spots[g.sites[k]].spliced = true;
	return !*failed;
}

/* -- */

static bool splice_here(struct splicer *s, uint32_t site, const struct merged *m)
{
	struct variant *v = s->v;
	const struct spot *spot = &v->spots[site];

	for (uint32_t i = 0; i < spot->n_off; i++) {
		const struct ptx_func *f = spot->place->func;
		if (!insert_text(v, insert_point(v, f, spot->off[i]), site_text(s, site, m, f->stmts[spot->off[i]].insn)))
			return false;
	}
	return insert_text(v, spot->at, site_text(s, site, m, guarded(s, site)));
}

static bool any_idle(const struct splicer *s, uint32_t site)
{
	for (uint32_t i = 0; i < s->req->n_fragments; i++)
		if (is_idle(s, s->req->fragments[i], site) && fits_point(s->req->fragments[i], s->v->sites[site].point) && fits_opcode(s, s->req->fragments[i], site))
			return true;
	return false;
}

static bool splice_site(struct splicer *s, uint32_t site)
{
	struct variant *v = s->v;
	struct merged m = merge(s, site);
	bool failed;

	if (!m.n && v->sites[site].unguarded && !v->spots[site].batched)
		v->sites[site].skipped = v->sites[site].unguarded;
	if (!m.n || v->sites[site].skipped || v->spots[site].spliced) {
		s->out->n_probed += !v->spots[site].spliced && (v->spots[site].batched || (!v->sites[site].skipped && any_idle(s, site)));
		return true;
	}
	if (!splice_group(s, site, &m, &failed) && (failed || !splice_here(s, site, &m)))
		return false;
	v->spots[site].place->gathered |= m.gathered;
	s->out->n_probed++;
	s->out->local_bytes_added += m.local_bytes;
	return true;
}

/* Some counters of a place, a bit each, at 0 for the lanes that the guard lets through. declare: with their registers. */
static void set_to_zero(struct variant *v, const struct place *p, uint32_t counters, const struct ptx_insn *guard, bool declare, uint32_t at)
{
	struct buf b = { 0 };

	if (declare)
		buf_printf(&b, "\n\t.reg .b64 %" COUNT_REG "<%u>;\n", p->n_counters);
	buf_puts(&b, "{ // egpu site counters\n");
	for (uint32_t k = 0; k < p->n_counters; k++) {
		if (!(counters >> k & 1))
			continue;
		buf_puts(&b, "\t");
		if (guard)
			buf_printf(&b, "@%s%s ", guard->pred_negated ? "!" : "", guard->pred);
		buf_printf(&b, "mov.u64 %" COUNT_REG "%u, 0;\n", k);
	}
	buf_puts(&b, "}\n\t");
	v->edits.failed |= b.failed;
	ptx_edit_insert(&v->edits, at, arena_strdup(v->arena, b.data ? b.data : ""));
	buf_free(&b);
}

/* Counters begin at 0, and again where the thread may come back. */
static void set_counters(struct variant *v)
{
	for (uint32_t i = 0; i < v->n_places; i++) {
		const struct place *p = &v->places[i];
		if (!p->n_counters)
			continue;
		set_to_zero(v, p, UINT32_MAX, NULL, true, p->func->body.begin + 1);
		for (uint32_t n = 0; n < p->n_leaves; n++) {
			const struct leave *leave = &p->leaves[n];
			if (leave->again)
				set_to_zero(v, p, leave->counters, insn_at(p->func, leave->stmt), false, leave->at);
		}
	}
}

/* The replica of this multiprocessor, once for all sites of a function: it stays the same, and where it did not, sums would still be
 * right. */
static void set_slots(struct variant *v)
{
	for (uint32_t i = 0; i < v->n_places; i++) {
		const struct place *p = &v->places[i];
		if (!p->slot)
			continue;
		ptx_edit_insert(&v->edits, p->func->body.begin + 1, "\n\t.reg .b32 " SLOT_REG ";\n");
		ptx_edit_insert(&v->edits, p->split ? insert_point(v, p->func, p->split_stmt) : p->func->body.begin + 1,
			arena_printf(v->arena,
				"{ // egpu site slot\n\t.reg .b32 %%egpu_xt1;\n"
				"\tmov.u32 %%egpu_xt1, %%smid;\n"
				"\tld.const.u32 %" SLOT_REG ", [" TABLE_NAME "+%d];\n"
				"\tsub.u32 %" SLOT_REG ", %" SLOT_REG ", 1;\n"
				"\tmin.u32 %" SLOT_REG ", %" SLOT_REG ", %%egpu_xt1;\n}\n\t",
				8 * EBPF_TABLE_SMS));
	}
}

/* One array a function and field: those of all scopes would add up. */
static void declare_lanes(struct splicer *s)
{
	struct variant *v = s->v;

	for (uint32_t i = 0; i < v->n_places; i++) {
		s->out->local_bytes_added += ebpf_lane_bytes(v->places[i].gathered);
		for (int f = 0; f < EBPF_FIELD_COUNT; f++) {
			if (v->places[i].gathered >> f & 1)
				ptx_edit_insert(&v->edits, v->places[i].func->body.begin + 1,
					arena_printf(v->arena, "\n\t.local .align 8 .b8 " LANES_NAME "%s[%u];\n", ebpf_fields[f].name,
						32u * ebpf_fields[f].bytes));
		}
	}
}

/* -- the launch id -- */

/* ", .param .u64 name" behind the last parameter. */
static void add_param(struct variant *v, const struct ptx_func *f)
{
	const char *separator = f->n_params ? ",\n\t" : "";
	bool written = f->params_span.end > f->params_span.begin;
	uint32_t at = written ? f->params_span.end - 1 : f->params_span.end;

	ptx_edit_insert(&v->edits, at,
		arena_printf(v->arena, "%s%s.param .u64 " LAUNCH_PARAM "%s", written ? "" : "(",
			separator, written ? "" : ")"));
}

static void pass_launch(struct variant *v, const struct ptx_func *f, uint32_t stmt)
{
	const struct ptx_insn *insn = f->stmts[stmt].insn;
	const struct ptx_operand *target = call_target(insn);
	const struct ptx_operand *args = target + 1;
	const char *arg = "%egpu_call";

	ptx_edit_insert(&v->edits, insert_point(v, f, stmt),
		f == v->kernel && v->weight_in_calls ? "mov.b64 %egpu_call, " WORD_REG ";\n\t"
						     : "ld.param.u64 %egpu_call, [" LAUNCH_PARAM "];\n\t");
	if (args < insn->operands + insn->n_operands && args->kind == PTX_OPERAND_GROUP)
		ptx_edit_insert(&v->edits, args->span.end - 1,
			arena_printf(v->arena, "%s%s", args->n_sub ? ", " : "", arg));
	else
		ptx_edit_insert(&v->edits, target->span.end, arena_printf(v->arena, ", (%s)", arg));
}

/* Whether the callee is one of the variant's own functions, under its name or an alias. */
static bool is_own(const struct variant *v, const char *name)
{
	for (uint32_t i = 0; i < v->n_places; i++) {
		if (!strcmp(v->places[i].func->name, name))
			return true;
	}
	const char *stands_for = table_gets(v->functions, name);
	return stands_for && strcmp(stands_for, name) != 0;
}

static void thread_launch(struct variant *v, const struct place *place)
{
	const struct ptx_func *f = place->func;
	bool any = false;

	if (!place->is_kernel)
		add_param(v, f);
	for (uint32_t i = 0; i < f->n_stmts; i++) {
		const struct ptx_insn *insn = f->stmts[i].insn;
		if (!insn || !is_call(insn) || !is_own(v, call_target(insn)->name))
			continue;
		pass_launch(v, f, i);
		any = true;
	}
	if (any)
		ptx_edit_insert(&v->edits, f->body.begin + 1, "\n\t.reg .b64 %egpu_call;\n");
}

/* Called functions take the launch id as one more, last parameter; so must their declarations. */
static void thread_launch_everywhere(struct variant *v)
{
	for (uint32_t i = 0; i < v->n_places; i++)
		thread_launch(v, &v->places[i]);
	for (uint32_t i = 0; i < v->m->n_items; i++) {
		const struct ptx_func *f = v->m->items[i].func;
		if (v->m->items[i].kind == PTX_ITEM_FUNC && f->is_decl &&
			table_gets(v->functions, f->name) && is_own(v, f->name))
			add_param(v, f);
	}
}

static bool add_launch_param(struct splicer *s)
{
	struct variant *v = s->v;
	uint32_t limit = v->target.version >= 801 && v->target.sm >= 70 ? 32764 : 4352;
	uint64_t offset = 0;

	for (uint32_t i = 0; i < v->kernel->n_params; i++) {
		const struct ptx_var *p = &v->kernel->params[i];
		offset = (offset + p->align_bytes - 1) / p->align_bytes * p->align_bytes;
		offset += p->size_bytes;
	}
	offset = (offset + 7) / 8 * 8;
	s->out->launch_param_offset = (uint32_t)offset;
	if (!s->out->launch_param)
		return true;
	if (offset + 8 > limit)
		return variant_refuse(v, v->kernel->params[0].line,
			"its parameters leave no room for the launch id (%llu of %u bytes)",
			(unsigned long long)offset, limit);
	add_param(v, v->kernel);
	if (s->launch_in_calls)
		thread_launch_everywhere(v);
	return true;
}

/* -- all sites -- */

/* The statement before which a site's probe goes. */
static uint32_t probe_stmt(const struct variant *v, uint32_t site)
{
	const struct spot *spot = &v->spots[site];
	const struct ptx_func *f = spot->place->func;

	if (spot->moved)
		return spot->before;
	if (spot->stmt != NO_STMT)
		return spot->stmt + (v->sites[site].point == EBPF_POINT_LOAD_DONE);
	return f->n_stmts && spot->at <= f->stmts[0].span.begin ? 0 : f->n_stmts;
}

/* Where a probe would part products from their sums it goes behind the sums. */
static bool keep_products(struct variant *v, uint32_t site, const struct products *p, uint64_t fields, uint32_t *at)
{
	struct spot *spot = &v->spots[site];
	enum ebpf_point point = v->sites[site].point;
	bool moves = point <= EBPF_POINT_MEM || point == EBPF_POINT_INSN;

	if (!p->parted[*at])
		return true;
	if (!moves || !sink_past_products(spot->place, p, spot, fields, at))
		return false;
	spot->at = insert_point(v, spot->place->func, *at);
	return true;
}

/* Where the probes of a function go that go elsewhere than to their sites. */
static bool move_probes(struct splicer *s, struct place *place, uint32_t from, uint32_t to)
{
	struct variant *v = s->v;
	struct products *p = &s->products[place - v->places];

	if (!products_find(v, place, p) || (!p->any && (!tally(v, s->req, place, from, to) || !put_entry_behind_loads(v, s->req, place, from, to))))
		return false;
	place->summed = p->any;
	return put_behind_loads(v, s->req, place, p->parted, from, to) && form_batches(v, s->req, place, p->parted, from, to);
}

static bool keep_sums(struct splicer *s, struct place *place, uint32_t from, uint32_t to)
{
	struct variant *v = s->v;
	struct products p = s->products[place - v->places];
	uint32_t *at = arena_array(v->arena, to - from, sizeof(*at));
	struct held *held = arena_array(v->arena, to - from, sizeof(*held));

	if (!at || !held)
		return no_memory(v);
	if (p.any)
		batches_probed(v, place, &p);
	for (uint32_t i = from; i < to && p.any; i++) {
		if (v->sites[i].skipped || !merge(s, i).n)
			continue;
		at[i - from] = probe_stmt(v, i);
		s->out->last_bit_may_differ |= !keep_products(v, i, &p, merge(s, i).fields, &at[i - from]);
		p.probed[at[i - from]] = true;
	}
	for (uint32_t i = from; i < to && p.any; i++) {
		if (v->sites[i].skipped || !merge(s, i).n)
			continue;
		if (!products_held(v, place, &p, at[i - from], &held[i - from]))
			return false;
		v->spots[i].held = &held[i - from];
		s->out->last_bit_may_differ |= held[i - from].some_missing;
	}
	return !p.any || batches_held(v, place, &p, &s->out->last_bit_may_differ);
}

/* The sites of one function end where the next one's begin. */
static uint32_t end_of_place(const struct variant *v, uint32_t from)
{
	uint32_t to = from;

	while (to < v->n_sites && v->spots[to].place == v->spots[from].place)
		to++;
	return to;
}

static bool each_place(struct splicer *s, bool (*pass)(struct splicer *s, struct place *place, uint32_t from, uint32_t to))
{
	for (uint32_t from = 0, to; from < s->v->n_sites; from = to) {
		to = end_of_place(s->v, from);
		if (!pass(s, s->v->spots[from].place, from, to))
			return false;
	}
	return true;
}

bool mark_parting(struct variant *v)
{
	for (uint32_t from = 0, to; from < v->n_sites; from = to) {
		struct products p;
		to = end_of_place(v, from);
		if (!products_find(v, v->spots[from].place, &p))
			return false;
		for (uint32_t i = from; i < to && p.any; i++) {
			uint32_t at = probe_stmt(v, i);
			v->sites[i].parts_product = !v->sites[i].skipped && !keep_products(v, i, &p, UINT64_MAX, &at);
		}
	}
	return true;
}

/* What programs ask of the launch; which functions get a version without. */
static void plan(struct splicer *s)
{
	struct variant *v = s->v;
	struct instrument_result *out = s->out;
	bool *mixed = arena_array(v->arena, v->n_places + 1, sizeof(*mixed));

	v->edits.failed |= !mixed;
	for (uint32_t i = 0; mixed && i < v->n_sites; i++) {
		struct merged m = v->sites[i].skipped ? (struct merged){ 0 } : merge(s, i);
		uint32_t place = (uint32_t)(v->spots[i].place - v->places);
		bool launch = m.fields >> EBPF_FIELD_LAUNCH & 1;
		mixed[place] |= m.n_sampled != m.n;
		v->places[place].sampled |= m.n_sampled;
		out->sampled |= m.n_sampled;
		out->reads_launch |= launch;
		out->launch_param |= launch || m.n_sampled;
		s->launch_in_calls |= (launch || m.n_sampled) && !v->places[place].is_kernel;
	}
	for (uint32_t i = 0; mixed && i < v->n_places; i++)
		v->places[i].split = v->places[i].sampled && !mixed[i] && may_split(v, &v->places[i]);
}

/* What functions begin with, before the sites that use it. */
static bool prepare_places(struct splicer *s)
{
	struct variant *v = s->v;

	for (uint32_t i = 0; i < v->n_sites; i++) {
		struct spot *spot = &v->spots[i];
		struct merged m = v->sites[i].skipped ? (struct merged){ 0 } : merge(s, i);
		spot->place->slot |= m.slot;
		spot->sampled = m.n_sampled || (spot->batched && spot->batched->sampled);
		spot->probe = m.n_sampled ? probe_stmt(v, i) : spot->sampled ? spot->batch_before : NO_STMT;
	}
	return set_samples(v);
}

static bool splice_sites(struct splicer *s)
{
	struct variant *v = s->v;

	for (uint32_t t = 0; t < 4; t++) {
		for (uint32_t i = 0; i < v->n_sites; i++) {
			if (turn(v->sites[i].point) == t && !splice_site(s, i))
				return false;
		}
	}
	set_counters(v);
	declare_lanes(s);
	/* The clock is read last before a load. */
	for (uint32_t i = 0; i < v->n_sites; i++) {
		struct merged m = merge(s, i);
		if (v->sites[i].point == EBPF_POINT_LOAD_DONE && m.n && !v->sites[i].skipped &&
			!keep_before(s, i, &m))
			return false;
	}
	return true;
}

bool splice(struct variant *v, const struct instrument_request *req, struct instrument_result *out)
{
	struct splicer s = { .v = v, .req = req, .out = out };

	if (!check_fragments(&s))
		return false;
	s.parts = arena_array(v->arena, req->n_fragments + 1, sizeof(*s.parts));
	s.products = arena_array(v->arena, v->n_places + 1, sizeof(*s.products));
	if (!s.parts || !s.products)
		return no_memory(v);
	plan(&s);
	for (uint32_t i = 0; i < req->n_fragments; i++)
		v->sampled |= req->fragments[i]->sampled;
	if (!each_place(&s, move_probes) || !choose_calls(v, req) || !each_place(&s, keep_sums))
		return false;
	for (uint32_t i = 0; i < req->n_fragments; i++) {
		bool called = is_called(v, req->fragments[i]);
		s.parts[i] = called || may_part(req->fragments[i]);
		out->local_bytes_added += called ? req->fragments[i]->local_bytes : 0;
	}
	if (!prepare_places(&s) || !add_launch_param(&s) || !split_places(v))
		return false;
	set_slots(v);
	return splice_batches(v, req) && splice_sites(&s);
}
