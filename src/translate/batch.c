/* batch.c - ring records of several places in one reservation (struct ebpf_batch).
 *
 * A record needs its place before it can be written: a round trip to the second-level cache, in a
 * warp that may live no longer. Where the same lanes go through several places, one round trip
 * serves them all, while their loads are under way (instrument/batch.c).
 *
 * For that a program must do nothing but send one record, on one path, which is chosen by fields
 * that the instrumenter knows: the path's text has no branch, so that everything from the
 * activemask to the commit stays one basic block (access.c), or is the lowest lane's alone.
 *
 * Records of lanes: a group for each place. Records of accesses: one group for all of them, if each
 * finds its lanes side by side.
 *
 * These make one try at one bin, and little else: kernels live for a hundred instructions a warp. Where it does not
 * go that way - lanes anywhere, lanes missing below, a bin that is full - each place goes its own way: the path once
 * more, and all that a record needs. What it takes in registers is taken from those who never go there, too.
 */
#include "translate/ring.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Each place keeps its address until then. A kernel with twelve accesses in an unrolled loop took 1.24 times its time on an H200 with 6 of them
 * at once, 1.49 with 4, and 1.45 with 8, where registers went to memory. */
enum { MAX_PATH = 256, MAX_PUTS = 64, MOST_LANES = 8, MOST_ACCESSES = 6 };

#define BIT(id) (1ull << EBPF_FIELD_##id)
/* Fields whose values are the same at all places of a stretch, or are an access's own. */
static const uint64_t of_place =
	BIT(SITE) | BIT(KERNEL) | BIT(LAUNCH) | BIT(BLOCK_DIM_X) | BIT(BLOCK_DIM_Y) |
	BIT(BLOCK_DIM_Z) | BIT(BLOCK_X) | BIT(BLOCK_Y) | BIT(BLOCK_Z) | BIT(GRID_DIM_X) |
	BIT(GRID_DIM_Y) | BIT(GRID_DIM_Z) | BIT(LANE) | BIT(WARP) | BIT(SM) | BIT(THREAD_X) |
	BIT(THREAD_Y) | BIT(THREAD_Z) | BIT(ADDRESS) | BIT(BYTES) | BIT(SPACE) | BIT(OP);
struct batch {
	struct tr *t;
	struct tr_inst *inst;
	struct ebpf_batch *out;
	bool *sends; /* per instruction: a helper is called from there on, perhaps */
	uint32_t path[MAX_PATH], n;
	uint32_t call, release; /* indices into inst->at; release: of a reservation */
	bool sent, released;
	const struct ebpf_map *m;
	uint32_t bytes; /* of a lane's record; 0: of an access */
	bool plain;	/* an access whose address and bytes are the context's */
	bool like;	/* its text is the one that does not ask whether lanes lie side by side */
	struct tr_fields field;
	bool is_record[TR_REGS]; /* it holds what a reservation gave */

	/* the text */
	struct tr_ring g;
	struct tr_hint h;
	struct tr_ways w;
	struct tr_name full; /* label: the hint names no bin */
	struct tr_group l;
	struct tr_place at;
	struct tr_name items, total, each; /* .b32: how many; bytes of all, of a lane group */
	struct tr_name base, mine;	   /* addresses: of the reservation, of this lane's first record */
	struct tr_name lead;		   /* predicate: the lowest lane, having room */
	struct tr_name record;		   /* address: of the lane's record that is reserved */
	struct put *puts;
	uint32_t n_puts;
	struct tr_pieces piece;
	struct tr_name needed, present; /* .b32: the lanes that write pieces; those of them that are here */
	struct tr_group_head head;
};

/* -- the path -- */

static bool calls(const struct tr *t, const struct tr_inst *inst, uint32_t i)
{
	return tr_is_call(tr_bpf(t, inst, i));
}

/* What registers hold behind an instruction. */
static void follow(struct batch *b, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(b->t, b->inst, i);
	bool moves = tr_is_move(in), record = b->sent && i == b->call && in->imm == BPF_FUNC_ringbuf_reserve;
	if (moves)
		record = BPF_CLASS(in->code) == BPF_ALU64 && b->is_record[in->src_reg];
	for (uint32_t r = 0; r < TR_REGS; r++)
		if (tr_defs(b->t, b->inst, i) >> r & 1)
			b->is_record[r] = (moves || r == BPF_REG_0) && record;
	tr_follow(b->t, b->inst, i, &b->field);
}

static bool good_access(struct batch *b, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(b->t, b->inst, i);
	for (uint32_t a = 1; a <= 4; a++)
		if (a != 2 && !f->args[a].constant && !(f->uniform >> (a + 1) & 1))
			return false;
	b->plain = tr_holds(&b->field, BPF_REG_3, EBPF_FIELD_ADDRESS) && (f->args[3].constant || tr_holds(&b->field, BPF_REG_4, EBPF_FIELD_BYTES));
	b->bytes = 0;
	return true;
}

static bool good_output(struct batch *b, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(b->t, b->inst, i);
	return f->args[3].constant && f->args[3].value <= TR_WAKEUP_FLAGS &&
	       tr_ring_outputs_together(b->t, b->inst, i, b->m, &b->bytes);
}

static bool good_reserve(struct batch *b, uint32_t i)
{
	const struct ebpf_fact *f = tr_fact(b->t, b->inst, i);
	if (!f->args[1].constant || !f->args[2].constant || f->args[2].value || !f->args[1].value ||
		f->args[1].value > TR_BY_STORE || !tr_ring_shares(b->m, f->args[1].value))
		return false;
	b->bytes = (uint32_t)f->args[1].value;
	return true;
}

/* The one record's helper, or the submit that ends a reservation. */
static bool good_call(struct batch *b, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(b->t, b->inst, i);
	bool good = false;
	if (in->src_reg || b->inst->at[i].callee)
		return false;
	if (in->imm == BPF_FUNC_ringbuf_submit) {
		good = b->sent && !b->released && b->is_record[BPF_REG_1];
		b->released = true;
		b->release = i;
		return good;
	}
	if (b->sent)
		return false;
	b->m = tr_ring_arg(b->t, b->inst, i);
	b->call = i;
	b->sent = true;
	if (!b->m)
		return false;
	if (in->imm == BPF_FUNC_ringbuf_output)
		good = good_output(b, i);
	else if (in->imm == BPF_FUNC_ringbuf_reserve)
		good = good_reserve(b, i);
	else if (in->imm == EBPF_FUNC_egpu_access)
		good = good_access(b, i);
	b->released = in->imm != BPF_FUNC_ringbuf_reserve;
	return good;
}

/* Whether a path may have this instruction: its text is straight, and nothing is changed but what
 * this run of the program has for itself. */
static bool good_insn(struct batch *b, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(b->t, b->inst, i);
	uint8_t region = tr_fact(b->t, b->inst, i)->region;
	if (b->inst->at[i].role != TR_PLAIN)
		return false;
	switch (BPF_CLASS(in->code)) {
	case BPF_ALU:
	case BPF_ALU64:
		return true;
	case BPF_LD:
		return ebpf_is_imm64(in) && in->src_reg != BPF_PSEUDO_MAP_VALUE;
	case BPF_LDX:
		return region == EBPF_REGION_CONTEXT || region == EBPF_REGION_STACK;
	case BPF_ST:
	case BPF_STX:
		return !tr_is_atomic(in) &&
		       (region == EBPF_REGION_STACK ||
			       (region == EBPF_REGION_RECORD && b->is_record[in->dst_reg] && BPF_MODE(in->code) == BPF_MEM &&
				       !(in->off % (int)ebpf_insn_bytes(in->code))));
	default:
		return tr_is_exit(in) || (tr_is_call(in) ? good_call(b, i) : tr_is_jump(in));
	}
}

/* A field compared with a number that is none of the negative ones. */
static bool add_when(struct batch *b, uint32_t i, bool taken)
{
	struct ebpf_batch *out = b->out;
	bool good = out->n_when < TR_MAX_WHEN && tr_field_test(b->t, b->inst, i, taken, &b->field, &out->when[out->n_when]);
	out->n_when += good;
	return good;
}

/* Where the path goes from a jump, -1: it does not. */
static int32_t choose(struct batch *b, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(b->t, b->inst, i);
	int32_t next = tr_next(b->t, b->inst, i), jump = tr_jump(b->t, b->inst, i);
	if (next < 0 || jump < 0 || b->inst->at[i].dead)
		return next < 0 ? jump : next;
	if (b->is_record[in->dst_reg]) { /* of nothing else that is known here */
		bool none = BPF_OP(in->code) == BPF_JEQ, good = (none || BPF_OP(in->code) == BPF_JNE) &&
			    BPF_SRC(in->code) == BPF_K && !in->imm && !b->sends[none ? jump : next];
		return good ? none ? next : jump : -1;
	}
	if (b->sent || b->sends[next] == b->sends[jump] || !add_when(b, i, b->sends[jump]))
		return -1;
	return b->sends[jump] ? jump : next;
}

static bool find_path(struct batch *b)
{
	uint32_t i = b->t->index_of[b->t->funcs[b->inst->func].entry];
	for (;;) {
		bool dead = b->inst->at[i].dead;
		if (b->n == MAX_PATH || (!dead && !good_insn(b, i)))
			return false;
		b->path[b->n++] = i;
		const struct bpf_insn *in = tr_bpf(b->t, b->inst, i);
		if (tr_is_exit(in))
			return b->sent && b->released;
		int32_t to = tr_is_jump(in) && !tr_is_call(in) ? choose(b, i) : tr_next(b->t, b->inst, i);
		if (!dead)
			follow(b, i);
		if (to < 0)
			return false;
		i = (uint32_t)to;
	}
}

/* -- text -- */

static const char *take_text(struct tr *t)
{
	const char *text = t->body.failed ? NULL : arena_strndup(t->arena, t->body.data ? t->body.data : "", t->body.len);
	buf_free(&t->body);
	t->body = (struct buf){ 0 };
	t->body.failed = !text;
	return text ? text : "";
}

static uint32_t record_bytes(const struct batch *b)
{
	return (uint32_t)map_round_up(b->bytes, 8);
}

/* -- stores to a reserved record: written at its submit, 16 bytes at a time where they come to that -- */

/* A value that is stored there, of 4 or 8 bytes or fewer. */
struct put {
	int32_t at;
	uint32_t bytes;
	struct tr_name value; /* .b64, zero-extended */
};

static void put_alone(struct batch *b, const struct put *p)
{
	tr_emit(b->t, "@%s st.global.u%u [%s+%d], %s;", b->at.got.s, p->bytes * 8, b->record.s, p->at, p->value.s);
}

/* The 8 bytes at an offset, if they are there in one or two pieces, which are taken out. */
static bool take_eight(struct batch *b, int32_t at, struct tr_name *out)
{
	struct put *low = NULL, *high = NULL;
	for (uint32_t k = 0; k < b->n_puts; k++) {
		struct put *p = &b->puts[k];
		if (p->at == at && (p->bytes == 8 || p->bytes == 4))
			low = p;
		if (p->at == at + 4 && p->bytes == 4)
			high = p;
	}
	if (!low || (low->bytes == 4 && !high))
		return false;
	if (low->bytes == 8) {
		*out = low->value;
	} else {
		struct tr_name wide = tr_t64(b->t);
		tr_emit(b->t, "shl.b64 %s, %s, 32;", wide.s, high->value.s);
		tr_emit(b->t, "or.b64 %s, %s, %s;", wide.s, wide.s, low->value.s);
		*out = wide;
		high->bytes = 0;
	}
	low->bytes = 0;
	return true;
}

static void put_eight(struct batch *b, int32_t at, struct tr_name value)
{
	const struct put p = { at, 8, value };
	put_alone(b, &p);
}

static void write_puts(struct batch *b)
{
	for (int32_t at = 0; at + 8 <= (int32_t)record_bytes(b); at += 16) {
		struct tr_name low, high;
		bool has_low = take_eight(b, at, &low), has_high = take_eight(b, at + 8, &high);
		if (has_low && has_high && !(record_bytes(b) & 15)) {
			tr_emit(b->t, "@%s st.global.v2.u64 [%s+%d], {%s, %s};", b->at.got.s, b->record.s, at, low.s, high.s);
			continue;
		}
		if (has_low)
			put_eight(b, at, low);
		if (has_high)
			put_eight(b, at + 8, high);
	}
	for (uint32_t k = 0; k < b->n_puts; k++)
		if (b->puts[k].bytes)
			put_alone(b, &b->puts[k]);
	b->n_puts = 0;
}

static void add_put(struct batch *b, uint32_t i)
{
	const struct bpf_insn *in = tr_bpf(b->t, b->inst, i);
	struct put p = { in->off, ebpf_insn_bytes(in->code), tr_t64(b->t) };
	struct tr_name from = BPF_CLASS(in->code) == BPF_STX ? tr_reg(b->inst, in->src_reg) : tr_imm(in->imm);
	bool free = b->n_puts < MAX_PUTS;
	for (uint32_t k = 0; k < b->n_puts; k++)
		free &= p.at + (int32_t)p.bytes <= b->puts[k].at || b->puts[k].at + (int32_t)b->puts[k].bytes <= p.at;
	if (!free) /* what is written twice is written in order */
		write_puts(b);
	tr_emit(b->t, "mov.b64 %s, %s;", p.value.s, from.s);
	if (p.bytes < 8)
		tr_emit(b->t, "and.b64 %s, %s, 0x%llx;", p.value.s, p.value.s, (1ull << (8 * p.bytes)) - 1);
	b->puts[b->n_puts++] = p;
}

/* The path, straight; `record` stands for the record's helper. */
static int put_path(struct batch *b, int (*record)(struct batch *b))
{
	struct tr *t = b->t;
	int err = 0;
	tr_lower_main(t);
	for (uint32_t k = 0; k < b->n && !err; k++) {
		uint32_t i = b->path[k];
		uint8_t class = BPF_CLASS(tr_bpf(t, b->inst, i)->code);
		if (i == b->call)
			err = record(b);
		else if (i == b->release)
			write_puts(b);
		else if ((class == BPF_ST || class == BPF_STX) && tr_fact(t, b->inst, i)->region == EBPF_REGION_RECORD)
			add_put(b, i);
		else if (!b->inst->at[i].dead && class != BPF_JMP && class != BPF_JMP32)
			err = tr_lower_insn(t, b->inst, i);
	}
	return err;
}

static void begin(struct batch *b)
{
	b->items = tr_text("%egpu_items");
	b->g = tr_ring_of(b->t, b->m);
	b->h = tr_ring_hint(b->t, &b->g);
}

/* base + item * stride, which is a register or a number. */
static struct tr_name of_item(struct tr *t, struct tr_name base, const char *stride)
{
	struct tr_name to = tr_t64(t);
	tr_emit(t, "mad.wide.u32 %s, %%egpu_item, %s, %s;", to.s, stride, base.s);
	return to;
}

static const char *on(char text[48], struct tr_name pred)
{
	snprintf(text, 48, "@%s ", pred.s);
	return text;
}

/* Who commits. */
static void commits(struct batch *b)
{
	b->lead = tr_pred(b->t);
	tr_emit(b->t, "and.pred %s, %s, %s;", b->lead.s, b->at.got.s, b->l.leads.s);
}

/* -- records of lanes -- */

static void reserve_lanes(struct batch *b)
{
	struct tr *t = b->t;
	begin(b);
	b->w = tr_ring_begin(t, &b->h);
	b->l = tr_lanes_here(t);
	b->each = tr_t32(t);
	b->total = tr_t32(t);
	tr_emit(t, "mad.lo.u32 %s, %s, %u, %d;", b->each.s, b->l.n.s, record_bytes(b), MAP_RING_GROUP + 15);
	tr_emit(t, "and.b32 %s, %s, 0xfffffff0;", b->each.s, b->each.s);
	tr_emit(t, "mul.lo.u32 %s, %s, %s;", b->total.s, b->each.s, b->items.s);
	b->at = tr_ring_ask(t, &b->g, b->h.bin, b->total, &b->l, &b->l.leads);
	b->base = tr_ring_at(t, &b->g, &b->at);
	b->mine = tr_wide(t, b->l.rank, record_bytes(b), b->base);
	commits(b);
	b->head = tr_ring_group_head(t, b->l.n, b->bytes);
}

static int put_lane(struct batch *b)
{
	struct tr *t = b->t;
	struct tr_name base = of_item(t, b->base, b->each.s), mine = of_item(t, b->mine, b->each.s), r0 = tr_reg(b->inst, 0);
	struct tr_mem from;
	char who[48];
	int err;
	tr_ring_put_head(t, &b->head, on(who, b->lead), base);
	if (tr_bpf(t, b->inst, b->call)->imm == BPF_FUNC_ringbuf_reserve) {
		b->record = tr_t64(t);
		tr_emit(t, "add.s64 %s, %s, %d;", b->record.s, mine.s, MAP_IMAGE_HEADER + MAP_RING_GROUP);
		tr_emit(t, "mov.u64 %s, %s;", r0.s, b->record.s);
		return 0;
	}
	err = tr_mem_arg(t, b->inst, b->call, 1, &from);
	if (err)
		return err;
	tr_ring_put(t, &from, on(who, b->at.got), mine, MAP_IMAGE_HEADER + MAP_RING_GROUP, b->bytes);
	tr_emit(t, "mov.u64 %s, 0;", r0.s);
	return 0;
}

/* Behind the stores; all lanes come by, whatever they were told. */
static void commit(struct batch *b)
{
	char who[48];
	tr_ring_together(b->t, &b->l);
	tr_ring_commit_asked(b->t, &b->g, on(who, b->lead), &b->at, b->total);
}

static void end_lanes(struct batch *b)
{
	struct tr *t = b->t;
	commit(b);
	struct tr_name hinted = tr_ring_as_hinted(t, &b->w);
	tr_emit(t, "and.pred %s, %s, %s;", hinted.s, hinted.s, b->at.got.s);
	tr_emit(t, "@%s bra %s;", hinted.s, b->w.done.s);
	tr_ring_keep_hint(t, &b->h, &b->lead, false);
	tr_emit(t, "@%s bra %s;", b->at.got.s, b->w.done.s);
	tr_ring_next(t, &b->g, &b->h, &b->at, &b->l.leads, &b->w, false, &b->items);
	buf_printf(&t->body, "%s:\n", b->w.done.s);
}

static int lanes(struct batch *b)
{
	reserve_lanes(b);
	b->out->begin = take_text(b->t);
	int err = put_path(b, put_lane);
	b->out->item = take_text(b->t);
	end_lanes(b);
	b->out->end = take_text(b->t);
	return err;
}

/* -- records of accesses: the group's bytes are written by as many lanes, 16 each. Lane 0 has the head, the next ones have a record -- */

enum { ACCESS_BYTES = 16 };

static void meet(struct batch *b)
{
	struct tr *t = b->t;
	struct tr_pieces *p = &b->piece;
	*p = (struct tr_pieces){ .lane = tr_t32(t), .mask = tr_mask_here(t), .site = tr_t32(t), .info = tr_t32(t), .first_site = tr_t32(t),
		.first_info = tr_t32(t), .lo = tr_t32(t), .hi = tr_t32(t), .dense = tr_pred(t) };
	b->needed = tr_t32(t);
	b->present = tr_t32(t);
	tr_emit(t, "mov.u32 %s, %%laneid;", p->lane.s);
	tr_emit(t, "shl.b32 %s, 2, %s;", b->needed.s, b->items.s);
	tr_emit(t, "sub.u32 %s, %s, 1;", b->needed.s, b->needed.s);
	tr_emit(t, "and.b32 %s, %s, %s;", b->present.s, p->mask.s, b->needed.s);
	tr_emit(t, "setp.eq.u32 %s, %s, %s;", p->dense.s, b->present.s, b->needed.s);
	b->l = (struct tr_group){ .mask = p->mask, .first = tr_text("0"), .rank = p->lane, .leads = tr_pred(t) };
	tr_emit(t, "setp.eq.u32 %s, %s, 0;", b->l.leads.s, p->lane.s);
}

static void begin_pieces(struct batch *b)
{
	struct tr *t = b->t;
	meet(b);
	b->head = tr_ring_group_head(t, b->items, ACCESS_BYTES);
	tr_emit(t, "mov.b64 {%s, %s}, %s;", b->piece.lo.s, b->piece.hi.s, b->head.time.s);
}

static int put_access(struct batch *b)
{
	tr_access_piece(b->t, b->inst, b->call, &b->piece, b->like);
	tr_emit(b->t, "mov.u64 %s, 0;", tr_reg(b->inst, 0).s);
	return 0;
}

static int put_alone_access(struct batch *b)
{
	return tr_access_alone(b->t, b->inst, b->call);
}

/* As a sum that ptxas does not see through: a number it makes anew, in two registers, for each of both additions. */
static void count_bytes(struct batch *b)
{
	struct tr *t = b->t;
	struct tr_name n = tr_t32(t);
	b->total = tr_t32(t);
	tr_emit(t, "mad.lo.u32 %s, %s, %d, %d;", n.s, b->items.s, ACCESS_BYTES, MAP_RING_GROUP);
	tr_emit(t, "sub.u32 %s, %s, %s;", n.s, n.s, b->needed.s);
	tr_emit(t, "add.u32 %s, %s, %s;", b->total.s, b->present.s, n.s);
}

/* What this lane writes: the head is the lowest one's. */
static void write_piece(struct batch *b)
{
	struct tr *t = b->t;
	struct tr_pieces *p = &b->piece;
	struct tr_name head[2] = { tr_t32(t), tr_t32(t) }, slot = tr_t32(t), writes = tr_pred(t);
	tr_emit(t, "mov.b64 {%s, %s}, %s;", head[0].s, head[1].s, b->head.word.s);
	tr_emit(t, "selp.b32 %s, %s, %s, %s;", head[0].s, head[0].s, p->site.s, b->l.leads.s);
	tr_emit(t, "selp.b32 %s, %s, %s, %s;", head[1].s, head[1].s, p->mask.s, b->l.leads.s);
	tr_emit(t, "@!%s prmt.b32 %s, %s, %s, 0x4210;", b->l.leads.s, p->hi.s, p->hi.s, p->info.s); /* the highest byte */
	tr_emit(t, "add.u32 %s, %s, %s;", slot.s, b->at.slot.s, p->lane.s);
	b->at.slot = slot;
	tr_emit(t, "setp.le.and.u32 %s, %s, %s, %s;", writes.s, p->lane.s, b->items.s, b->at.got.s);
	tr_emit(t, "@%s st.global.v4.u32 [%s+%d], {%s, %s, %s, %s};", writes.s, tr_ring_at(t, &b->g, &b->at).s, MAP_IMAGE_HEADER, head[0].s,
		head[1].s, p->lo.s, p->hi.s);
}

static void send_pieces(struct batch *b)
{
	struct tr *t = b->t;
	struct tr_name asks = tr_pred(t);
	tr_emit(t, "vote.sync.all.pred %s, %s, %s;", b->piece.dense.s, b->piece.dense.s, b->l.mask.s);
	tr_emit(t, "and.pred %s, %s, %s;", asks.s, b->piece.dense.s, b->l.leads.s);
	count_bytes(b);
	b->at = tr_ring_ask(t, &b->g, b->h.bin, b->total, &b->l, &asks);
	write_piece(b);
	commits(b);
}

/* What is behind the commit is out of the way, and what it needs should not be held in registers until then: the hint is nobody's business any
 * more. */
static void end_accesses(struct batch *b)
{
	struct tr *t = b->t;
	struct tr_name alone = tr_label(t);
	commit(b);
	tr_emit(t, "@!%s bra %s;", b->at.got.s, alone.s);
	tr_emit(t, "bra $egpu_together;");
	buf_printf(&t->body, "%s:\n", b->full.s);
	tr_emit(t, "@!%s bra $egpu_apart;", tr_ring_trusts(t).s);
	tr_ring_drop(t, &b->h, true, &b->items);
	tr_emit(t, "bra $egpu_together;");
	buf_printf(&t->body, "%s:\n", alone.s);
	tr_emit(t, "@!%s bra $egpu_apart;", b->piece.dense.s);
	tr_ring_close(t, &b->g, b->h.bin, &b->at, b->l.leads.s);
	buf_puts(&t->body, "$egpu_apart:\n");
}

static int accesses(struct batch *b)
{
	begin(b);
	b->full = tr_label(b->t);
	tr_emit(b->t, "@%s bra %s;", b->h.full.s, b->full.s);
	begin_pieces(b);
	b->out->begin = take_text(b->t);
	int err = put_path(b, put_access);
	b->out->item = take_text(b->t);
	b->like = b->plain;
	if (!err && b->like) {
		err = put_path(b, put_access);
		b->out->like = take_text(b->t);
	}
	send_pieces(b);
	end_accesses(b);
	b->out->end = take_text(b->t);
	if (!err)
		err = put_path(b, put_alone_access);
	b->out->apart = take_text(b->t);
	return err;
}

/* -- all -- */

/* One basic block, or the instrumenter's scope does not hold. */
static bool is_straight(const char *text)
{
	return !strstr(text, "bra ") && !strstr(text, "call") && !strstr(text, ":\n");
}

static bool is_candidate(const struct tr *t, const struct ebpf_fragment *f)
{
	const struct tr_frame *frame = &t->insts[0]->frame;
	bool access = f->point == EBPF_POINT_LOAD || f->point == EBPF_POINT_STORE || f->point == EBPF_POINT_ATOMIC ||
		      f->point == EBPF_POINT_ACCESS || f->point == EBPF_POINT_MEM;
	return access && !f->warp && !t->once && t->n_insts == 1 && frame->low == frame->high && !f->n_funcs && !t->n_keys &&
	       !t->counts_calls && !f->slot && !(f->fields & ~of_place) && t->insts[0]->n <= MAX_PATH;
}

/* Declarations in front of the text. */
static const char *declared(struct tr *t, const char *text)
{
	const struct {
		const char *type, *name;
		uint32_t n;
	} regs[] = { { "b64", "%egpu_r", TR_REGS }, { "b64", "%egpu_rs", t->n_slots }, { "b64", "%egpu_rd", t->n_t64 },
		{ "b32", "%egpu_rw", t->n_t32 }, { "pred", "%egpu_rp", t->n_pred } };
	for (size_t k = 0; k < sizeof(regs) / sizeof(regs[0]); k++)
		if (regs[k].n)
			buf_printf(&t->body, "\t.reg .%s %s<%u>;\n", regs[k].type, regs[k].name, regs[k].n);
	buf_puts(&t->body, text);
	return take_text(t);
}

int tr_batch(struct tr *t, struct ebpf_fragment *f)
{
	struct ebpf_batch *out = arena_alloc(t->arena, sizeof(*out));
	struct batch b = { .t = t, .inst = t->insts[0], .out = out, .release = UINT32_MAX, .puts = arena_array(t->arena, MAX_PUTS, sizeof(*b.puts)) };
	if (!out || !b.puts)
		return diag_set(t->d, ENOMEM, "out of memory");
	*out = (struct ebpf_batch){ .when = arena_array(t->arena, TR_MAX_WHEN, sizeof(*out->when)) };
	if (is_candidate(t, f))
		b.sends = tr_leads_to(t, b.inst, calls);
	if (!out->when || (is_candidate(t, f) && !b.sends))
		return diag_set(t->d, ENOMEM, "out of memory");
	if (!is_candidate(t, f) || !find_path(&b))
		return 0;
	uint32_t bin = map_ring_bin_bytes(b.m->max_entries) / 4;
	out->most = b.bytes ? bin / (uint32_t)map_ring_group_bytes(b.bytes, 32) : (bin - MAP_RING_GROUP) / ACCESS_BYTES;
	out->most = out->most < (b.bytes ? MOST_LANES : MOST_ACCESSES) ? out->most : b.bytes ? MOST_LANES : MOST_ACCESSES;
	if (!out->most)
		return 0;
	buf_free(&t->body);
	t->body = (struct buf){ 0 };
	t->n_t64 = t->n_t32 = t->n_pred = t->n_labels = 0;
	t->batched = true;
	t->lanes.at = t->joined.n = 0;
	t->found.inst = NULL;
	int err = b.bytes ? lanes(&b) : accesses(&b);
	out->begin = declared(t, out->begin);
	if (t->body.failed)
		return diag_set(t->d, ENOMEM, "out of memory");
	if (!err && is_straight(out->item))
		f->batch = out;
	return err;
}
