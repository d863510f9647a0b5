/* translate.c - the pipeline, and its result as a fragment or as a test module. */
#include "translate/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int run_passes(struct tr *t)
{
	if (!t->p->n_insns || !t->v->facts || !t->v->facts[0].reached)
		return diag_set(t->d, EINVAL, "the program has no first instruction");
	for (uint32_t k = 0; k < t->p->n_maps; k++)
		if (t->p->maps[k].id >= EBPF_TABLE_MAPS)
			return diag_set(t->d, EINVAL, "map \"%s\" has id %u, beyond the table",
				t->p->maps[k].name, t->p->maps[k].id);
	int (*const passes[])(struct tr *) = { tr_flow, tr_stack, tr_live, tr_begin, tr_idiom, tr_extreme, tr_races, tr_use, tr_lower };
	for (size_t k = 0; k < sizeof(passes) / sizeof(passes[0]); k++) {
		int err = passes[k](t);
		if (err)
			return err;
	}
	return t->body.failed ? diag_set(t->d, ENOMEM, "out of memory") : 0;
}

static void put_regs(struct buf *out, const char *type, const char *name, uint32_t n)
{
	if (n)
		buf_printf(out, "\t.reg .%s %s<%u>;\n", type, name, n);
}

/* Declarations, then the instructions. */
static void put_scope(struct tr *t, struct buf *out)
{
	buf_puts(out, "{\n");
	put_regs(out, "b64", "%egpu_r", (uint32_t)t->n_insts * TR_REGS);
	put_regs(out, "b64", "%egpu_rs", t->n_slots);
	put_regs(out, "b64", "%egpu_rd", t->n_t64);
	put_regs(out, "b32", "%egpu_rw", t->n_t32);
	put_regs(out, "pred", "%egpu_rp", t->n_pred);
	for (size_t k = 0; k < t->n_insts; k++) {
		const struct tr_frame *f = &t->insts[k]->frame;
		if (t->insts[k]->n_callers > 1)
			buf_printf(out, "\t.reg .b32 %%egpu_rcall%zu;\n", k);
		if (f->low != f->high)
			buf_printf(out, "\t.local .align 8 .b8 $egpu_stack%zu[%d];\n", k,
				f->high - f->low);
	}
	for (uint32_t k = 0; k < t->n_keys; k++)
		buf_printf(out, "\t.local .align 8 .b8 $egpu_key%u[8];\n", k);
	if (t->counts_calls)
		buf_puts(out, "\t.reg .b64 %egpu_rcalls;\n\tmov.u64 %egpu_rcalls, 0;\n");
	buf_add(out, t->body.data ? t->body.data : "", t->body.len);
	buf_puts(out, "}\n");
}

static uint32_t local_bytes(const struct tr *t)
{
	uint32_t sum = t->n_keys * 8 + ebpf_lane_bytes(t->gathered);
	for (size_t k = 0; k < t->n_insts; k++)
		sum += (uint32_t)((t->insts[k]->frame.high - t->insts[k]->frame.low + 7) / 8 * 8);
	return sum;
}

static int fill_params(struct tr *t, struct ebpf_fragment *out)
{
	out->params = arena_array(t->arena, EBPF_PARAM_COUNT, sizeof(*out->params));
	if (!out->params)
		return diag_set(t->d, ENOMEM, "out of memory");
	for (uint32_t k = 0; k < EBPF_PARAM_COUNT; k++)
		if (t->param_bytes[k])
			out->params[out->n_params++] =
				(struct ebpf_fragment_param){ k, t->param_bytes[k] };
	return 0;
}

/* What a program of chosen warps leaves in maps is of these warps alone, where it is not weighed. */
static void find_unweighed(struct tr *t)
{
	for (uint32_t i = 0; t->p->sampled && i < EBPF_MAX_MAPS; i++) {
		struct ebpf_map_use *use = &t->use[i];
		bool all = use->weighed;
		for (uint32_t k = 0; k < EBPF_FOLD_HALVES; k++)
			all &= use->fold[k] <= EBPF_FOLD_ADD64;
		use->unweighed = !all && (use->folded || use->changed || use->inserted);
	}
}

static enum ebpf_update_op op_of(const struct tr_rmw *rmw)
{
	if (rmw->several)
		return EBPF_UPDATE_OTHER;
	if (rmw->op == TR_ADD)
		return tr_rmw_adds(rmw) ? EBPF_UPDATE_ADD : EBPF_UPDATE_OTHER;
	return (rmw->op == TR_MIN ? EBPF_UPDATE_MIN_U : EBPF_UPDATE_MAX_U) + rmw->is_signed;
}

/* By instruction: its update, if it is a store of one; how many copies of it there are, and in how many it is that store, or its load. */
struct updates {
	struct ebpf_update *of;
	uint32_t *copies, *alike;
};

static void note_update(struct updates *u, const struct tr_inst *inst, const struct tr_insn *at)
{
	if (at->dead)
		return;
	u->copies[at->pc]++;
	if (at->role != TR_RMW_STORE && at->role != TR_RMW_LOAD)
		return;
	const struct ebpf_update now = { inst->at[at->rmw->load].pc, inst->at[at->rmw->store].pc, op_of(at->rmw) };
	struct ebpf_update *was = &u->of[now.store];
	if (at->role == TR_RMW_STORE && !u->alike[at->pc])
		*was = now;
	u->alike[at->pc]++;
	if (at->role == TR_RMW_STORE && (was->load != now.load || was->op != now.op))
		was->op = EBPF_UPDATE_OTHER;
}

/* Where copies of a function differ at a store or load, the update is OTHER. */
static int fill_updates(struct tr *t, struct ebpf_fragment *out)
{
	uint32_t n = t->p->n_insns;
	struct updates u = { arena_array(t->arena, n, sizeof(*u.of)), arena_array(t->arena, n, sizeof(*u.copies)),
		arena_array(t->arena, n, sizeof(*u.alike)) };
	if (!u.of || !u.copies || !u.alike)
		return diag_set(t->d, ENOMEM, "out of memory");
	for (size_t k = 0; k < t->n_insts; k++)
		for (uint32_t i = 0; i < t->insts[k]->n; i++)
			note_update(&u, t->insts[k], &t->insts[k]->at[i]);
	struct ebpf_update *list = u.of;
	for (uint32_t pc = 0; pc < n; pc++) {
		struct ebpf_update now = u.of[pc];
		if (!now.store)
			continue;
		bool adds = now.op == EBPF_UPDATE_ADD;
		if (u.alike[pc] != u.copies[pc] || (adds && u.alike[now.load] != u.copies[now.load]))
			now.op = EBPF_UPDATE_OTHER;
		list[out->n_updates++] = now;
	}
	out->updates = list;
	return 0;
}

static int fill(struct tr *t, enum ebpf_point point, bool warp, struct ebpf_fragment *out)
{
	struct buf text = { 0 };
	put_scope(t, &text);
	find_unweighed(t);
	*out = (struct ebpf_fragment){
		.name = arena_strdup(t->arena, t->p->name ? t->p->name : ""),
		.point = point,
		.warp = warp,
		.fields = t->fields,
		.gathered = t->gathered,
		.slot = t->replicates,
		.sampled = t->p->sampled,
		.anywhere = tr_anywhere(t),
		.maps = t->maps,
		.use = t->use,
		.max_insns = t->v->max_run_insns < UINT32_MAX ? (uint32_t)t->v->max_run_insns
							      : UINT32_MAX,
		.local_bytes = local_bytes(t),
		.funcs = t->helper_funcs,
		.n_funcs = (uint32_t)t->n_helper_funcs,
		.body = text.failed ? NULL : arena_strndup(t->arena, text.data, text.len),
	};
	buf_free(&text);
	if (t->v->max_local_bytes && out->local_bytes > t->v->max_local_bytes)
		return diag_set(t->d, E2BIG,
			"%s needs %u bytes of local memory in each thread, and %u are allowed; address the stack at constant offsets, which "
			"become registers%s, or raise the limit with --max-local",
			t->p->name ? t->p->name : "the program", out->local_bytes, t->v->max_local_bytes,
			t->gathered ? ", and read fewer fields of other lanes" : "");
	if (!out->name || !out->body)
		return diag_set(t->d, ENOMEM, "out of memory");
	int err = fill_updates(t, out);
	return err ? err : fill_params(t, out);
}

/* The body once more, for many runs at once. It reads and calls what the other does. */
static int add_repeat(const struct tr *of, struct ebpf_fragment *out)
{
	struct tr t = { .arena = of->arena, .p = of->p, .v = of->v, .d = of->d, .repeat = true };
	struct buf text = { 0 };
	int err = run_passes(&t);
	if (!err) {
		put_scope(&t, &text);
		out->repeat = text.failed ? NULL : arena_strndup(t.arena, text.data, text.len);
		out->words = t.words > 2 ? 4 : t.words == 2 ? 2 : 1;
		err = out->repeat ? 0 : diag_set(t.d, ENOMEM, "out of memory");
	}
	buf_free(&text);
	buf_free(&t.body);
	return err;
}

int translate_program(struct arena *arena, const struct ebpf_program *p,
	const struct verifier_result *v, enum ebpf_point point, bool warp,
	struct ebpf_fragment *out, struct diag *d)
{
	struct tr t = { .arena = arena, .p = p, .v = v, .d = d, .one_lane = warp, .entry = point == EBPF_POINT_ENTRY };
	if (p->context == EBPF_CONTEXT_NONE)
		return diag_set(d, EINVAL, "a program without a context runs only in a test");
	int err = run_passes(&t);
	if (!err)
		err = fill(&t, point, warp, out);
	if (!err && (point == EBPF_POINT_BLOCK || (point >= EBPF_POINT_LOAD && point <= EBPF_POINT_MEM)) && tr_repeats(&t))
		err = add_repeat(&t, out);
	if (!err)
		err = tr_when(&t, out);
	if (!err)
		err = tr_batch(&t, out);
	buf_free(&t.body);
	return err;
}

/* -- test kernels ------------------------------------------------------------ */

static void put_entry(struct tr *t, const char *name, struct buf *out)
{
	buf_printf(out,
		".visible .entry %s(.param .u64 memory, .param .u64 result, .param .u64 table)\n{\n"
		"\t.reg .b64 %%egpu_memory, %%egpu_result, %%egpu_table;\n"
		"\tld.param.u64 %%egpu_memory, [memory];\n"
		"\tld.param.u64 %%egpu_result, [result];\n"
		"\tld.param.u64 %%egpu_table, [table];\n",
		name);
	if (t->replicates)
		buf_printf(out,
			"\t.reg .b32 %%egpu_slot, %%egpu_last;\n\tmov.u32 %%egpu_slot, %%smid;\n"
			"\tld.global.u32 %%egpu_last, [%%egpu_table+%d];\n"
			"\tsub.u32 %%egpu_last, %%egpu_last, 1;\n"
			"\tmin.u32 %%egpu_slot, %%egpu_slot, %%egpu_last;\n",
			8 * EBPF_TABLE_SMS);
	put_scope(t, out);
	buf_puts(out, "\tret;\n}\n");
}

static void put_funcs(const struct tr *t, struct buf *out)
{
	for (size_t k = 0; k < t->n_helper_funcs; k++)
		buf_puts(out, t->helper_funcs[k].text);
}

static int test_kernel(struct tr *t, const char *name, struct buf *out)
{
	if (t->p->context != EBPF_CONTEXT_NONE)
		return diag_set(t->d, EINVAL, "a program with a context runs only at its point");
	int err = run_passes(t);
	if (err)
		return err;
	tr_emit(t, "st.global.u64 [%%egpu_result], %s;", tr_reg(t->insts[0], 0).s);
	put_entry(t, name, out);
	return 0;
}

static uint32_t sm_number(const char *target)
{
	return !strncmp(target, "sm_", 3) ? (uint32_t)atoi(target + 3) : 0;
}

static uint32_t version_number(const char *version)
{
	return (uint32_t)(atoi(version) * 100 + atoi(strchr(version, '.') + 1));
}

/* The lowest PTX version that knows a target; the text itself needs no more than 6.0. */
static const char *version_for(const char *target)
{
	static const struct {
		int sm;
		const char *version;
	} table[] = { { 75, "6.3" }, { 86, "7.1" }, { 89, "7.8" }, { 90, "8.0" }, { 101, "8.6" },
		{ 120, "8.8" } };
	int sm = (int)sm_number(target);
	for (size_t k = 0; k < sizeof(table) / sizeof(table[0]); k++)
		if (sm <= table[k].sm)
			return table[k].version;
	return "9.0";
}

int translate_test_module(struct arena *arena, const struct ebpf_program *const *programs,
	const struct verifier_result *results, uint32_t n, const char *target, struct buf *ptx,
	struct diag *d)
{
	struct buf entries = { 0 };
	struct tr t = { 0 };
	int err = 0;
	for (uint32_t k = 0; k < n && !err; k++) {
		char name[32];
		snprintf(name, sizeof(name), n == 1 ? "egpu_test" : "egpu_test%u", k);
		struct tr next = { .arena = arena,
			.p = programs[k],
			.v = &results[k],
			.d = d,
			.test = true,
			.table = "%egpu_table",
			.helper_funcs = t.helper_funcs,
			.n_helper_funcs = t.n_helper_funcs,
			.cap_helper_funcs = t.cap_helper_funcs };
		t = next;
		err = test_kernel(&t, name, &entries);
		buf_free(&t.body);
	}
	if (!err) {
		const char *version = version_for(target);
		struct buf text = { 0 };
		put_funcs(&t, &text);
		buf_add(&text, entries.data ? entries.data : "", entries.len);
		buf_printf(ptx, ".version %s\n.target %s\n.address_size 64\n", version, target);
		if (!text.failed && text.data)
			ebpf_fragment_text(text.data, version_number(version), sm_number(target), ptx);
		entries.failed |= text.failed;
		buf_free(&text);
		if (ptx->failed || entries.failed)
			err = diag_set(d, ENOMEM, "out of memory");
	}
	buf_free(&entries);
	return err;
}

int translate_test_kernel(struct arena *arena, const struct ebpf_program *p,
	const struct verifier_result *v, const char *target, struct buf *ptx, struct diag *d)
{
	return translate_test_module(arena, &p, v, 1, target, ptx, d);
}
