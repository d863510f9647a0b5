/* helper.c - calls of helpers, inlined or through the module-scope functions of hash.c and ring.c.
 */
#include "translate/internal.h"

#include <errno.h>
#include <string.h>

enum { ENOENT_ = -2, E2BIG_ = -7, EAGAIN_ = -11, EEXIST_ = -17, EINVAL_ = -22 };

enum {
	UPDATE_NOEXIST = 1,
	UPDATE_LAST = 2, /* BPF_EXIST: the highest flag */
	PRINTK_HEADER = 32,
	PRINTK_ARGS = 3,
};

static const char trace_map[] = "egpu_trace";

/* -- arguments --------------------------------------------------------------- */

static const struct ebpf_helper *helper_at(
	const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return ebpf_helper_by_number((uint32_t)tr_bpf(t, inst, i)->imm);
}

const struct ebpf_map *tr_map_arg(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	int32_t map = tr_fact(t, inst, i)->map;
	return map >= 0 && (uint32_t)map < t->p->n_maps ? &t->p->maps[map] : NULL;
}

static uint8_t arg_kind(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint32_t a)
{
	const struct ebpf_helper *h = helper_at(t, inst, i);
	return h ? h->args[a] : EBPF_ARG_NONE;
}

bool tr_helper_arg_memory(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint32_t a)
{
	uint8_t kind = arg_kind(t, inst, i, a);
	return kind == EBPF_ARG_KEY || kind == EBPF_ARG_VALUE || kind == EBPF_ARG_VALUE_OUT || kind == EBPF_ARG_MEM || kind == EBPF_ARG_OUT;
}

bool tr_helper_arg_bytes(
	const struct tr *t, const struct tr_inst *inst, uint32_t i, uint32_t a, uint32_t *bytes)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	const struct ebpf_map *m = tr_map_arg(t, inst, i);
	*bytes = 0;
	switch (arg_kind(t, inst, i, a)) {
	case EBPF_ARG_KEY:
		*bytes = m ? m->key_size : 0;
		return m;
	case EBPF_ARG_VALUE:
	case EBPF_ARG_VALUE_OUT:
		*bytes = m ? m->value_size : 0;
		return m;
	case EBPF_ARG_MEM:
		if (a == 4 || !f->args[a + 1].constant || f->args[a + 1].value > UINT32_MAX)
			return false;
		*bytes = (uint32_t)f->args[a + 1].value;
		return true;
	case EBPF_ARG_OUT:
		*bytes = 8;
		return true;
	default:
		return false;
	}
}

uint32_t tr_helper_by_value(const struct tr *t, const struct tr_inst *inst, uint32_t i, uint32_t a)
{
	const struct ebpf_map *m = tr_map_arg(t, inst, i);
	return m && map_is_hash(m->type) ? TR_BY_VALUE : TR_BY_STORE;
}

struct tr_name tr_scalar_arg(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	return f->args[a].constant ? tr_imm((int64_t)f->args[a].value) : tr_reg(inst, a + 1);
}

void tr_emit_call(
	struct tr *t, const char *func, const char *result, const struct tr_name *args, uint32_t n)
{
	tr_emit(t, "{");
	for (uint32_t k = 0; k < n; k++) {
		tr_emit(t, ".param .b64 egpu_arg%u;", k);
		tr_emit(t, "st.param.b64 [egpu_arg%u], %s;", k, args[k].s);
	}
	if (result)
		tr_emit(t, ".param .b64 egpu_result;");
	buf_printf(&t->body, "\tcall %s%s, (", result ? "(egpu_result), " : "", func);
	for (uint32_t k = 0; k < n; k++)
		buf_printf(&t->body, "%segpu_arg%u", k ? ", " : "", k);
	buf_puts(&t->body, ");\n");
	if (result)
		tr_emit(t, "ld.param.b64 %s, [egpu_result];", result);
	tr_emit(t, "}");
}

/* -- arrays ------------------------------------------------------------------ */

/* at = base + index * stride. */
static struct tr_name element(
	struct tr *t, struct tr_name index, uint64_t stride, struct tr_name base)
{
	struct tr_name at = tr_t64(t);
	if (stride <= UINT32_MAX) {
		tr_emit(t, "mad.wide.u32 %s, %s, %llu, %s;", at.s, index.s,
			(unsigned long long)stride, base.s);
		return at;
	}
	tr_emit(t, "cvt.u64.u32 %s, %s;", at.s, index.s);
	tr_emit(t, "mad.lo.s64 %s, %s, %llu, %s;", at.s, at.s, (unsigned long long)stride, base.s);
	return at;
}

/* The multiprocessor's number, below the number of replicas: taken once, where the kernel begins. */
static struct tr_name this_cpu(struct tr *t)
{
	if (t->once) /* where the others need not come */
		return t->slot;
	t->replicates = true;
	return tr_text("%egpu_slot");
}

/* Bytes between the replicas; 0: there is one. */
static struct tr_name replica_stride(struct tr *t, const struct ebpf_map *m)
{
	struct tr_name stride = tr_t32(t);
	uint32_t entry = 8 * (EBPF_TABLE_REPLICAS + m->id);
	if (t->test)
		tr_emit(t, "ld.global.u32 %s, [%s+%u];", stride.s, t->table, entry);
	else
		tr_emit(t, "ld.const.u32 %s, [__egpu_table+%u];", stride.s, entry);
	return stride;
}

struct tr_name tr_replica(struct tr *t, const struct ebpf_map *m, struct tr_name at)
{
	if (!tr_only_folds(t, m))
		return at;
	struct tr_name stride = replica_stride(t, m), out = tr_t64(t), slot = this_cpu(t);
	tr_emit(t, "mad.wide.u32 %s, %s, %s, %s;", out.s, slot.s, stride.s, at.s);
	return out;
}

struct tr_name tr_array_value(struct tr *t, const struct ebpf_map *m, struct tr_name index)
{
	struct tr_name base = tr_replica(t, m, tr_map_base(t, m)),
		       at = element(t, index, map_stride(m->value_size), base);
	if (m->type == BPF_MAP_TYPE_PERCPU_ARRAY)
		at = element(t, this_cpu(t), map_replica_bytes(m->max_entries, m->value_size), at);
	tr_emit(t, "add.s64 %s, %s, %d;", at.s, at.s, MAP_IMAGE_HEADER);
	return at;
}

struct tr_name tr_hash_cpu_value(struct tr *t, const struct ebpf_map *m, struct tr_name slot)
{
	struct tr_name at = element(t, slot, map_stride(m->value_size), tr_map_base(t, m));
	at = element(t, this_cpu(t), map_hash_replica_bytes(m->value_size, m->max_entries), at);
	tr_emit(t, "add.s64 %s, %s, %llu;", at.s, at.s,
		(unsigned long long)(MAP_IMAGE_HEADER + map_hash_slots_bytes(m->key_size, m->max_entries)));
	return at;
}

/* The thread's number in its grid, x first. */
static struct tr_name grid_thread(struct tr *t)
{
	struct tr_name at = tr_text("0");
	for (int k = 2; k >= 0; k--) {
		struct tr_name block = tr_t32(t), of = tr_t32(t), blocks = tr_t32(t), thread = tr_t32(t), next = tr_t64(t), wide = tr_t64(t);
		tr_emit(t, "mov.u32 %s, %%ctaid.%c;", block.s, "xyz"[k]);
		tr_emit(t, "mov.u32 %s, %%ntid.%c;", of.s, "xyz"[k]);
		tr_emit(t, "mov.u32 %s, %%tid.%c;", thread.s, "xyz"[k]);
		tr_emit(t, "cvt.u64.u32 %s, %s;", wide.s, thread.s);
		tr_emit(t, "mad.wide.u32 %s, %s, %s, %s;", next.s, block.s, of.s, wide.s);
		if (k < 2) {
			tr_emit(t, "mov.u32 %s, %%nctaid.%c;", blocks.s, "xyz"[k]);
			tr_emit(t, "mul.wide.u32 %s, %s, %s;", wide.s, blocks.s, of.s);
			tr_emit(t, "mad.lo.u64 %s, %s, %s, %s;", next.s, at.s, wide.s, next.s);
		}
		at = next;
	}
	return at;
}

/* The index of this thread's element, where the map has one for it: threads beyond are counted as losses. */
static void thread_index(struct tr *t, const struct ebpf_map *m, struct tr_name *index, struct tr_name *in_range)
{
	uint32_t threads = map_threads_of(m);
	struct tr_name thread = grid_thread(t), low = tr_t32(t), mine = tr_pred(t), beyond = tr_pred(t), base = tr_map_base(t, m), one = tr_text("1");
	tr_emit(t, "setp.lt.u64 %s, %s, %u;", mine.s, thread.s, threads);
	tr_emit(t, "setp.lt.u32 %s, %s, %u;", in_range->s, index->s, m->max_entries / threads);
	tr_emit(t, "not.pred %s, %s;", beyond.s, mine.s);
	tr_emit(t, "and.pred %s, %s, %s;", beyond.s, beyond.s, in_range->s);
	if (tr_weighs(t, m))
		one = tr_weigh(t, one);
	tr_emit(t, "@%s red.global.add.u64 [%s+%zu], %s;", beyond.s, base.s, offsetof(struct map_image, lost), one.s);
	tr_emit(t, "and.pred %s, %s, %s;", in_range->s, in_range->s, mine.s);
	tr_emit(t, "cvt.u32.u64 %s, %s;", low.s, thread.s);
	tr_emit(t, "mad.lo.u32 %s, %s, %u, %s;", index->s, index->s, threads, low.s);
}

/* The index, and whether it is below max_entries. */
static int array_index(struct tr *t, struct tr_inst *inst, uint32_t i, const struct ebpf_map *m,
	struct tr_name *index, struct tr_name *in_range)
{
	struct tr_mem key;
	int err = tr_mem_arg(t, inst, i, 1, &key);
	if (err)
		return err;
	struct tr_name word = tr_mem_word(t, &key, 0, 4);
	*index = tr_t32(t);
	*in_range = tr_pred(t);
	if (word.s[0] == '%')
		tr_emit(t, "cvt.u32.u64 %s, %s;", index->s, word.s);
	else
		tr_emit(t, "mov.u32 %s, %s;", index->s, word.s);
	if (map_threads_of(m))
		thread_index(t, m, index, in_range);
	else
		tr_emit(t, "setp.lt.u32 %s, %s, %u;", in_range->s, index->s, m->max_entries);
	return 0;
}

static int array_lookup(struct tr *t, struct tr_inst *inst, uint32_t i, const struct ebpf_map *m)
{
	struct tr_name index, ok;
	int err = array_index(t, inst, i, m, &index, &ok);
	if (err)
		return err;
	struct tr_name at = tr_array_value(t, m, index);
	tr_emit(t, "selp.b64 %s, %s, 0, %s;", tr_reg(inst, 0).s, at.s, ok.s);
	t->found = (struct tr_found){ inst, i, ok };
	return 0;
}

/* r0 = the error of flags that no array takes; the stores are jumped over unless it stays 0. */
static int array_update(struct tr *t, struct tr_inst *inst, uint32_t i, const struct ebpf_map *m)
{
	struct tr_name index, ok, r0 = tr_reg(inst, 0), flags = tr_scalar_arg(t, inst, i, 3),
				  p = tr_pred(t);
	struct tr_mem value;
	int err = array_index(t, inst, i, m, &index, &ok);
	if (!err)
		err = tr_mem_arg(t, inst, i, 2, &value);
	if (err)
		return err;
	struct tr_name done = tr_label(t), rc = tr_t64(t), flag = tr_t64(t);
	tr_emit(t, "selp.b64 %s, 0, %d, %s;", rc.s, E2BIG_, ok.s);
	tr_emit(t, "mov.u64 %s, %s;", flag.s, flags.s);
	tr_emit(t, "setp.eq.and.u64 %s, %s, %d, %s;", p.s, flag.s, UPDATE_NOEXIST, ok.s);
	tr_emit(t, "@%s mov.u64 %s, %d;", p.s, rc.s, EEXIST_);
	tr_emit(t, "setp.gt.u64 %s, %s, %d;", p.s, flag.s, UPDATE_LAST);
	tr_emit(t, "@%s mov.u64 %s, %d;", p.s, rc.s, EINVAL_);
	tr_emit(t, "setp.ne.u64 %s, %s, 0;", p.s, rc.s);
	tr_emit(t, "@%s bra %s;", p.s, done.s);
	struct tr_name at = tr_array_value(t, m, index);
	tr_mem_copy(t, &value, at.s, 0, m->value_size);
	buf_printf(&t->body, "%s:\n", done.s);
	tr_emit(t, "mov.u64 %s, %s;", r0.s, rc.s);
	return 0;
}

/* -- hash maps --------------------------------------------------------------- */

enum { MAX_ARGS = 5 + 2 * 64 / 8 };

struct args {
	struct tr_name all[MAX_ARGS];
	uint32_t n;
};

static void push(struct args *args, struct tr_name arg)
{
	args->all[args->n++] = arg;
}

/* A key, or a value (of a map): its words, or its generic address. */
static int push_memory(struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a, uint32_t bytes,
	const struct ebpf_map *value_of, struct args *args)
{
	struct tr_mem m;
	int err = tr_mem_arg(t, inst, i, a, &m);
	if (err)
		return err;
	if (bytes > TR_BY_VALUE) {
		if (m.kind == TR_MEM_CONST)
			m.kind = TR_MEM_GLOBAL; /* base is the argument's register, which live.c
						   must keep */
		push(args, tr_mem_generic(t, &m));
		return 0;
	}
	for (uint32_t at = 0; at < bytes; at += 8) {
		struct tr_name word = tr_mem_word(t, &m, at, bytes - at < 8 ? bytes - at : 8);
		push(args, value_of ? tr_weigh_word(t, value_of, at, word) : word);
	}
	return 0;
}

typedef void (*hash_fn)(
	struct tr *t, const struct ebpf_map *m, const struct tr_name *args, uint32_t n, struct tr_name result);

/* The values of this multiprocessor, of a hash that the program only folds into; 0 where there are none. */
static struct tr_name own_values(struct tr *t, const struct ebpf_map *m)
{
	struct tr_name base = tr_map_base(t, m), stride = replica_stride(t, m), slot = this_cpu(t), none = tr_pred(t), out = tr_t64(t);
	tr_emit(t, "mad.wide.u32 %s, %s, %s, %s;", out.s, slot.s, stride.s, base.s);
	tr_emit(t, "add.s64 %s, %s, %llu;", out.s, out.s,
		(unsigned long long)(MAP_IMAGE_HEADER + map_hash_replicas_at(m->key_size, m->value_size, m->max_entries)));
	tr_emit(t, "setp.eq.u32 %s, %s, 0;", none.s, stride.s);
	tr_emit(t, "selp.b64 %s, 0, %s, %s;", out.s, out.s, none.s);
	return out;
}

static int hash_call(
	struct tr *t, struct tr_inst *inst, uint32_t i, const struct ebpf_map *m, hash_fn fn, bool update, struct tr_name result)
{
	struct args args = { .n = 0 };
	push(&args, tr_map_base(t, m));
	push(&args, tr_imm((int64_t)map_hash_slots(m->max_entries) - 1));
	if (map_is_per_cpu(m->type)) {
		struct tr_name cpu = tr_t64(t);
		tr_emit(t, "cvt.u64.u32 %s, %s;", cpu.s, this_cpu(t).s);
		push(&args, cpu);
	}
	if (fn == tr_hash_lookup && map_is_hash(m->type) && tr_only_folds(t, m))
		push(&args, own_values(t, m));
	if (update) {
		push(&args, tr_imm(m->max_entries));
		push(&args, tr_scalar_arg(t, inst, i, 3));
	}
	int err = push_memory(t, inst, i, 1, m->key_size, NULL, &args);
	if (!err && update)
		err = push_memory(t, inst, i, 2, m->value_size, m, &args);
	if (!err)
		fn(t, m, args.all, args.n, result);
	return err;
}

/* -- map helpers by map type ------------------------------------------------- */

static int no_map(struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return tr_unsupported(t, inst->at[i].pc, "which map is used differs between paths");
}

static int bad_type(struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return tr_unsupported(t, inst->at[i].pc, "this type of map has no such operation on a GPU");
}

static int lower_lookup(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_map_arg(t, inst, i);
	if (!m)
		return no_map(t, inst, i);
	if (map_is_array(m->type))
		return array_lookup(t, inst, i, m);
	return map_is_hash(m->type) ? hash_call(t, inst, i, m, tr_hash_lookup, false, tr_reg(inst, 0)) : bad_type(t, inst, i);
}

/* The key was not there at the look-up: is it there by now, the program goes on as if it had been. */
static int hash_begin(struct tr *t, struct tr_inst *inst, uint32_t i, const struct ebpf_map *m)
{
	const struct tr_begin *b = &inst->at[i].begins;
	struct tr_name at = tr_t64(t), there = tr_pred(t);
	int err = hash_call(t, inst, i, m, tr_hash_begin, true, at);
	if (err)
		return err;
	tr_emit(t, "setp.ne.u64 %s, %s, 0;", there.s, at.s);
	for (uint32_t r = 0; r < TR_REGS; r++)
		if (b->holders >> r & 1)
			tr_emit(t, "@%s mov.u64 %s, %s;", there.s, tr_reg(inst, (uint8_t)r).s, at.s);
	tr_emit(t, "@%s bra %s;", there.s, tr_at_label(inst, b->other - 1).s);
	return 0;
}

static int lower_update(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_map_arg(t, inst, i);
	if (!m)
		return no_map(t, inst, i);
	if (map_is_array(m->type))
		return array_update(t, inst, i, m);
	if (!map_is_hash(m->type))
		return bad_type(t, inst, i);
	return inst->at[i].begins.other ? hash_begin(t, inst, i, m) : hash_call(t, inst, i, m, tr_hash_update, true, tr_reg(inst, 0));
}

static int lower_delete(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_map_arg(t, inst, i);
	if (!m)
		return no_map(t, inst, i);
	if (map_is_array(m->type)) {
		tr_emit(t, "mov.u64 %s, %d;", tr_reg(inst, 0).s, EINVAL_);
		return 0;
	}
	return map_is_hash(m->type) ? hash_call(t, inst, i, m, tr_hash_delete, false, tr_reg(inst, 0)) : bad_type(t, inst, i);
}

static int lower_keyless(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_map_arg(t, inst, i);
	if (!m)
		return no_map(t, inst, i);
	return m->type == BPF_MAP_TYPE_BLOOM_FILTER ? tr_bloom_lower(t, inst, i) : tr_queue_lower(t, inst, i);
}

enum { SKIP_MASK = 0xff, USER_STACK = 0x100, FAST_COMPARE = 0x200, REUSE = 0x400 };

/* The id of this site, in a place that nothing else has, or that it takes over. Flags are constants. */
static int lower_stackid(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_map *m = tr_map_arg(t, inst, i);
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	struct tr_name r0 = tr_reg(inst, 0), id = tr_t32(t), mine = tr_t64(t), at = tr_t64(t), old = tr_t64(t), site = tr_t32(t),
		       same = tr_pred(t), empty = tr_pred(t);
	if (!m || !f->args[2].constant)
		return m ? tr_unsupported(t, inst->at[i].pc, "the flags of bpf_get_stackid have to be constants") : no_map(t, inst, i);
	uint64_t flags = f->args[2].value;
	if (flags & ~(uint64_t)(SKIP_MASK | USER_STACK | FAST_COMPARE | REUSE)) {
		tr_emit(t, "mov.u64 %s, %d;", r0.s, EINVAL_);
		return 0;
	}
	t->fields |= 1ull << EBPF_FIELD_SITE;
	tr_emit(t, "and.b32 %s, %%egpu_site, 0x%x;", id.s, (uint32_t)(map_stack_ids(m->max_entries) - 1));
	tr_emit(t, "add.u32 %s, %%egpu_site, 1;", site.s);
	tr_emit(t, "mov.b64 %s, {%s, %u};", mine.s, site.s, (uint32_t)(flags & SKIP_MASK));
	tr_emit(t, "mad.wide.u32 %s, %s, 8, %s;", at.s, id.s, tr_map_base(t, m).s);
	tr_emit(t, "cvt.u64.u32 %s, %s;", r0.s, id.s);
	/* All but the first find themselves there. */
	tr_emit(t, "ld.volatile.global.u64 %s, [%s+%d];", old.s, at.s, MAP_IMAGE_HEADER);
	tr_emit(t, "setp.eq.u64 %s, %s, 0;", empty.s, old.s);
	tr_emit(t, "@%s atom.global.cas.b64 %s, [%s+%d], 0, %s;", empty.s, old.s, at.s, MAP_IMAGE_HEADER, mine.s);
	tr_emit(t, "setp.eq.u64 %s, %s, 0;", empty.s, old.s);
	tr_emit(t, "setp.eq.or.u64 %s, %s, %s, %s;", same.s, old.s, mine.s, empty.s);
	if (flags & REUSE)
		tr_emit(t, "@!%s st.volatile.global.u64 [%s+%d], %s;", same.s, at.s, MAP_IMAGE_HEADER, mine.s);
	else
		tr_emit(t, "@!%s mov.u64 %s, %d;", same.s, r0.s, EEXIST_);
	return 0;
}

/* -- time, identity, chance -------------------------------------------------- */

static int lower_ktime(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	struct tr_name r0 = tr_reg(inst, 0), offset = tr_table(t, EBPF_TABLE_CLOCK);
	tr_emit(t, "mov.u64 %s, %%globaltimer;", r0.s);
	tr_emit(t, "add.s64 %s, %s, %s;", r0.s, r0.s, offset.s);
	return 0;
}

static int lower_cpu(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	tr_emit(t, "cvt.u64.u32 %s, %s;", tr_reg(inst, 0).s, this_cpu(t).s);
	return 0;
}

static int lower_process(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	struct tr_name process = tr_table(t, EBPF_TABLE_PROCESS);
	tr_emit(t, "mov.u64 %s, %s;", tr_reg(inst, 0).s, process.s);
	return 0;
}

/* x ^= x >> shift; x *= factor: the finaliser of MurmurHash3, twice. */
static void mix64(struct tr *t, struct tr_name x, const char *factor)
{
	struct tr_name s = tr_t64(t);
	tr_emit(t, "shr.u64 %s, %s, 33;", s.s, x.s);
	tr_emit(t, "xor.b64 %s, %s, %s;", x.s, x.s, s.s);
	tr_emit(t, "mul.lo.s64 %s, %s, %s;", x.s, x.s, factor);
}

/* x = x * 0x9e3779b97f4a7c15 + special register. */
static void mix_special(struct tr *t, struct tr_name x, const char *special)
{
	struct tr_name w = tr_t32(t), d = tr_t64(t);
	tr_emit(t, "mov.u32 %s, %s;", w.s, special);
	tr_emit(t, "cvt.u64.u32 %s, %s;", d.s, w.s);
	tr_emit(t, "mad.lo.s64 %s, %s, 0x9e3779b97f4a7c15, %s;", x.s, x.s, d.s);
}

/* No two calls see the same input: time and place differ between threads, time and a count between
 * calls of one. */
static int lower_prandom(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	static const char *const place[] = { "%smid", "%warpid", "%laneid", "%ctaid.x", "%ctaid.y",
		"%tid.x" };
	struct tr_name x = tr_t64(t), clock = tr_t64(t), seed = tr_table(t, EBPF_TABLE_SEED);
	t->counts_calls = true;
	tr_emit(t, "mov.u64 %s, %%clock64;", clock.s);
	tr_emit(t, "add.s64 %%egpu_rcalls, %%egpu_rcalls, 0x632be59bd9b4e019;");
	tr_emit(t, "add.s64 %s, %s, %%egpu_rcalls;", x.s, seed.s);
	tr_emit(t, "mad.lo.s64 %s, %s, 0x9e3779b97f4a7c15, %s;", x.s, x.s, clock.s);
	for (size_t k = 0; k < sizeof(place) / sizeof(place[0]); k++)
		mix_special(t, x, place[k]);
	mix64(t, x, "0xff51afd7ed558ccd");
	mix64(t, x, "0xc4ceb9fe1a85ec53");
	tr_emit(t, "shr.u64 %s, %s, 32;", tr_reg(inst, 0).s, x.s);
	return 0;
}

/* -- trace_printk ------------------------------------------------------------ */

/* Arguments that the format consumes, all three when it is not known now. */
static uint32_t printk_args(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	uint32_t map, bytes, n = 0;
	int64_t offset;
	if (!tr_helper_arg_bytes(t, inst, i, 0, &bytes) ||
		!tr_const_pointer(t, inst, i, 1, &map, &offset))
		return PRINTK_ARGS;
	const uint8_t *s = tr_frozen(&t->p->maps[map], offset, bytes, NULL);
	if (!s)
		return PRINTK_ARGS;
	for (uint32_t k = 0; k + 1 < bytes && s[k] && n < PRINTK_ARGS; k++) {
		if (s[k] != '%')
			continue;
		if (s[k + 1] == '%')
			k++;
		else
			n++;
	}
	return n;
}

static const struct ebpf_map *find_trace_map(const struct tr *t)
{
	for (uint32_t k = 0; k < t->p->n_maps; k++)
		if (t->p->maps[k].type == BPF_MAP_TYPE_RINGBUF && t->p->maps[k].name &&
			!strcmp(t->p->maps[k].name, trace_map))
			return &t->p->maps[k];
	return NULL;
}

/* Record: u32 format bytes, u32 arguments, u64 args[3], format: what is reserved for, and the label behind it where there is no room. */
struct printed {
	struct tr_ring_record r;
	struct tr_name rc, done;
};

/* len: of the record; size: of the format; rc = -EAGAIN when the ring is full. */
static int begin_print(struct tr *t, struct tr_inst *inst, uint32_t i, struct tr_name len, struct tr_name size, uint32_t n, struct printed *out)
{
	const struct ebpf_map *m = find_trace_map(t);
	if (!m)
		return tr_unsupported(
			t, inst->at[i].pc, "the program has no ring buffer \"egpu_trace\" for it");
	struct tr_name p = tr_pred(t);
	out->rc = tr_t64(t);
	out->done = tr_label(t);
	tr_emit(t, "mov.u64 %s, %d;", out->rc.s, EAGAIN_);
	out->r = tr_ring_reserve(t, m, len, false);
	tr_emit(t, "setp.eq.u64 %s, %s, 0;", p.s, out->r.at.s);
	tr_emit(t, "@%s bra %s;", p.s, out->done.s);
	tr_emit(t, "st.global.u32 [%s+0], %s;", out->r.at.s, size.s);
	tr_emit(t, "st.global.u32 [%s+4], %u;", out->r.at.s, n);
	for (uint32_t k = 0; k < PRINTK_ARGS; k++)
		tr_emit(t, "st.global.u64 [%s+%u], %s;", out->r.at.s, 8 + 8 * k, k < n ? tr_reg(inst, 3 + k).s : "0");
	return 0;
}

/* r0 = `bytes`, or why there are none. */
static void end_print(struct tr *t, struct tr_inst *inst, const struct printed *p, struct tr_name bytes)
{
	tr_ring_commit(t, &p->r);
	tr_emit(t, "mov.u64 %s, %s;", p->rc.s, bytes.s);
	buf_printf(&t->body, "%s:\n", p->done.s);
	tr_emit(t, "mov.u64 %s, %s;", tr_reg(inst, 0).s, p->rc.s);
}

static int lower_printk(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	struct tr_name size = tr_t64(t), len = tr_t64(t);
	struct printed p;
	tr_emit(t, "mov.u64 %s, %s;", size.s, tr_scalar_arg(t, inst, i, 1).s);
	tr_emit(t, "add.s64 %s, %s, %d;", len.s, size.s, PRINTK_HEADER);
	if (f->args[1].constant)
		len = tr_imm((int64_t)f->args[1].value + PRINTK_HEADER);
	int err = begin_print(t, inst, i, len, size, printk_args(t, inst, i), &p);
	if (!err)
		err = tr_ring_fill(t, inst, i, 0, p.r.at, PRINTK_HEADER);
	if (!err)
		end_print(t, inst, &p, size);
	return err;
}

/* The verifier has found the string: a format without arguments. */
static int lower_puts(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	uint64_t bytes = f->args[0].value;
	const uint8_t *s = f->map < 0 || !f->args[0].constant || !bytes || bytes > EBPF_MAX_STRING
				   ? NULL
				   : tr_frozen(&t->p->maps[f->map], f->args[0].offset, (uint32_t)bytes, NULL);
	char format[2 * EBPF_MAX_STRING + 1];
	if (!s)
		return tr_unsupported(t, inst->at[i].pc, "the string is not known");
	uint32_t n = ebpf_puts_format((const char *)s, (uint32_t)bytes - 1, format);
	struct tr_mem m = { .kind = TR_MEM_CONST, .bytes = (const uint8_t *)format, .n_bytes = n, .align = 1 };
	struct printed p;
	int err = begin_print(t, inst, i, tr_imm(n + PRINTK_HEADER), tr_imm(n), 0, &p);
	if (err)
		return err;
	tr_mem_copy(t, &m, p.r.at.s, PRINTK_HEADER, n);
	end_print(t, inst, &p, tr_imm((int64_t)bytes));
	return 0;
}

/* -- dispatch ---------------------------------------------------------------- */

typedef int (*lower_fn)(struct tr *t, struct tr_inst *inst, uint32_t i);

/* One row per helper of bpf/helpers.h; ignored: arguments that are never read. */
static const struct {
	const char *name;
	lower_fn lower;
	uint16_t ignored; /* bit per argument */
} rows[] = {
	{ "map_lookup_elem", lower_lookup, 0 },
	{ "map_update_elem", lower_update, 0 },
	{ "map_delete_elem", lower_delete, 0 },
	{ "get_current_pid_tgid", lower_process, 0 },
	{ "perf_event_output", tr_ring_lower, 1 << 0 | 1 << 2 },
	{ "get_stackid", lower_stackid, 0 },
	{ "map_push_elem", lower_keyless, 0 },
	{ "map_pop_elem", lower_keyless, 0 },
	{ "map_peek_elem", lower_keyless, 0 },
	{ "ktime_get_ns", lower_ktime, 0 },
	{ "trace_printk", lower_printk, 0 },
	{ "get_prandom_u32", lower_prandom, 0 },
	{ "get_smp_processor_id", lower_cpu, 0 },
	{ "ringbuf_output", tr_ring_lower, 0 },
	{ "ringbuf_reserve", tr_ring_lower, 0 },
	{ "ringbuf_submit", tr_ring_lower, 1 << 1 },
	{ "ringbuf_discard", tr_ring_lower, 1 << 1 },
	{ "ringbuf_query", tr_ring_lower, 0 },
	{ "for_each_map_elem", tr_loop_lower, 0 },
	{ "loop", tr_loop_lower, 0 },
	{ "puts", lower_puts, 0 },
	{ "get_globaltimer", tr_special_lower, 0 },
	{ "get_block_idx", tr_special_lower, 0 },
	{ "get_block_dim", tr_special_lower, 0 },
	{ "get_thread_idx", tr_special_lower, 0 },
	{ "gpu_membar", tr_special_lower, 0 },
	{ "gpu_exit", tr_special_lower, 0 },
	{ "get_grid_dim", tr_special_lower, 0 },
	{ "get_sm_id", tr_special_lower, 0 },
	{ "get_warp_id", tr_special_lower, 0 },
	{ "get_lane_id", tr_special_lower, 0 },
	{ "egpu_lane_read", tr_special_lower, 0 },
	{ "egpu_access", tr_access_lower, 0 },
	{ "egpu_delay_ns", tr_special_lower, 0 },
	{ "egpu_trap", tr_special_lower, 0 },
	{ "egpu_thread_exit", tr_special_lower, 0 },
};

static int row_of(const struct ebpf_helper *h)
{
	for (size_t k = 0; h && k < sizeof(rows) / sizeof(rows[0]); k++)
		if (!strcmp(rows[k].name, h->name))
			return (int)k;
	return -1;
}

static bool needs_arg(const struct tr *t, struct tr_inst *inst, uint32_t i, uint32_t a)
{
	const struct ebpf_fact *f = tr_fact(t, inst, i);
	uint32_t bytes;
	switch (arg_kind(t, inst, i, a)) {
	case EBPF_ARG_NONE:
	case EBPF_ARG_MAP:
	case EBPF_ARG_STRING:
	case EBPF_ARG_CTX:
	case EBPF_ARG_CTX_UNUSED:
		return false;
	case EBPF_ARG_OUT:
	case EBPF_ARG_VALUE_OUT:
		return tr_mem_needs_reg(t, inst, i, a);
	case EBPF_ARG_KEY:
	case EBPF_ARG_VALUE:
	case EBPF_ARG_MEM:
		if (tr_helper_arg_bytes(t, inst, i, a, &bytes) && bytes > TR_BY_VALUE &&
			f->args[a].region == EBPF_REGION_MAP_VALUE)
			return true; /* may be passed by address */
		return tr_mem_needs_reg(t, inst, i, a);
	case EBPF_ARG_RING_RECORD:
		return true;
	default:
		return !f->args[a].constant;
	}
}

uint16_t tr_helper_uses(const struct tr *t, struct tr_inst *inst, uint32_t i)
{
	const struct ebpf_helper *h = helper_at(t, inst, i);
	int row = row_of(h);
	uint16_t uses = 0;
	if (row < 0)
		return 0;
	bool printk = rows[row].lower == lower_printk;
	for (uint32_t a = 0; a < 5; a++) {
		if (rows[row].ignored >> a & 1)
			continue;
		if (printk && a >= 2 ? a - 2 < printk_args(t, inst, i) : needs_arg(t, inst, i, a))
			uses |= (uint16_t)(2u << a);
	}
	return uses;
}

int tr_helper_lower(struct tr *t, struct tr_inst *inst, uint32_t i)
{
	int row = row_of(helper_at(t, inst, i));
	if (row < 0)
		return tr_unsupported(t, inst->at[i].pc, "this helper does not exist on GPUs");
	return rows[row].lower(t, inst, i);
}
