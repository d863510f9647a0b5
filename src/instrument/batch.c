/* batch.c - requires sites; ring records of the sites of a stretch of code in one reservation (struct ebpf_batch).
 *
 * The records of all are written at one place, behind the loads (behind.c): the reservation's way to the second-level cache and back is
 * then beside that of the loads. What a record is made of is known there already: an address whose registers have not changed since, or
 * one that comes later of arithmetic that is repeated in front of the record. Other sites have their own reservation, and what one program
 * sends stays in the order of the text.
 */
#include <string.h>

#include "instrument/variant.h"

/* Instructions that an address is computed with; more are not repeated. */
enum { MAX_SLICE = 8 };

struct batch_item {
	uint32_t site;
	uint32_t slice[MAX_SLICE], n_slice; /* statements, in order */
	bool like;			    /* the address is an earlier one's and a number */
};

struct batch {
	struct batch *next;
	const struct place *place;
	uint32_t fragment, before; /* index in the request; the statement before which it goes */
	struct batch_item *items;
	uint32_t n;
	struct held held;
};

/* A stretch and a program. */
struct gather {
	struct variant *v;
	const struct instrument_request *req;
	const struct place *place;
	uint32_t from, to;
	uint32_t before; /* the statement before which records are written */
	uint32_t fragment;
	struct batch_item *items;
	uint32_t n;
	struct alike *alike; /* NULL until somebody asks */
};

/* -- what the instrumenter knows of a site -- */

bool when_holds(const struct ebpf_when *w, uint32_t value)
{
	switch (w->test) {
	case EBPF_TEST_EQ:
		return value == w->value;
	case EBPF_TEST_NE:
		return value != w->value;
	case EBPF_TEST_LT:
		return value < w->value;
	case EBPF_TEST_LE:
		return value <= w->value;
	case EBPF_TEST_GT:
		return value > w->value;
	case EBPF_TEST_GE:
		return value >= w->value;
	case EBPF_TEST_ANY:
		return value & w->value;
	case EBPF_TEST_NONE:
		return !(value & w->value);
	default:
		return false;
	}
}

enum part { PART_NONE, PART_ALONE, PART_BATCH };

/* NONE: the program sends nothing here. BATCH: all lanes that come by make the access, and it sends a record of each. */
static enum part takes_part(const struct gather *g, uint32_t site)
{
	const struct spot *spot = &g->v->spots[site];
	const struct instrument_site *s = &g->v->sites[site];
	const struct ebpf_batch *b = g->req->fragments[g->fragment]->batch;
	const struct ptx_insn *insn = insn_at(g->place->func, spot->stmt);
	bool access = s->point == EBPF_POINT_LOAD || s->point == EBPF_POINT_STORE || s->point == EBPF_POINT_ATOMIC;
	enum part part = PART_BATCH;

	for (uint32_t k = 0; k < b->n_when; k++) {
		uint32_t value;
		if (!known_field(g->v, site, g->req->first_site + site, b->when[k].field, &value))
			part = PART_ALONE;
		else if (!when_holds(&b->when[k], value))
			return PART_NONE;
	}
	if (!insn || !access || spot->batched || insn->pred || spot->access.lanes || spot->access.size >= 0 || spot->access.address < 0 ||
		!strcmp(insn->base, "cp"))
		return PART_ALONE;
	return part;
}

/* -- where its address comes from -- */

static bool writes(const struct ptx_insn *insn, const char *name)
{
	return insn && insn->n_operands && insn->operands[0].kind != PTX_OPERAND_ADDRESS && names_reg(&insn->operands[0], name);
}

/* The statement in [from, to) that writes the register; `to`: there is none; UINT32_MAX: several do, or one that cannot be repeated. */
static uint32_t writer_of(const struct gather *g, const char *name, uint32_t from, uint32_t to)
{
	static const char *const bases[] = { "mov", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "cvt", "cvta", "min", "max" };
	uint32_t found = to;

	for (uint32_t i = from; i < to; i++) {
		const struct ptx_insn *insn = g->place->func->stmts[i].insn;
		bool plain = false;
		if (!writes(insn, name))
			continue;
		for (size_t k = 0; k < sizeof(bases) / sizeof(bases[0]); k++)
			plain |= !strcmp(insn->base, bases[k]);
		/* Carries are the kernel's. */
		plain &= !insn->pred && !ptx_insn_has_mod(insn, "cc") && insn->operands[0].kind == PTX_OPERAND_REG && insn->operands[0].component < 0 &&
			 insn->operands[0].reg;
		for (uint32_t k = 1; plain && k < insn->n_operands; k++)
			plain = insn->operands[k].kind == PTX_OPERAND_INT ||
				(insn->operands[k].kind == PTX_OPERAND_REG && insn->operands[k].component < 0 && !insn->operands[k].negated);
		if (found != to || !plain)
			return UINT32_MAX;
		found = i;
	}
	return found;
}

static bool add_slice(struct batch_item *item, uint32_t stmt)
{
	uint32_t at = item->n_slice;

	for (uint32_t i = 0; i < item->n_slice; i++) {
		if (item->slice[i] == stmt)
			return true;
	}
	if (item->n_slice == MAX_SLICE)
		return false;
	for (; at && item->slice[at - 1] > stmt; at--)
		item->slice[at] = item->slice[at - 1];
	item->slice[at] = stmt;
	item->n_slice++;
	return true;
}

/* What must be repeated for the register's value before statement `to`, going forward from where records are written. */
static bool repeat(const struct gather *g, struct batch_item *item, const char *name, uint32_t to)
{
	uint32_t at = writer_of(g, name, g->before, to);

	if (at == to)
		return true;
	if (at == UINT32_MAX || !add_slice(item, at))
		return false;
	const struct ptx_insn *insn = g->place->func->stmts[at].insn;
	for (uint32_t k = 1; k < insn->n_operands; k++) {
		/* One register is written once in all of this, or writer_of says so for the later use. */
		if (insn->operands[k].kind == PTX_OPERAND_REG && (!strcmp(insn->operands[k].name, insn->operands[0].name) ||
								 !repeat(g, item, insn->operands[k].name, at)))
			return false;
	}
	return true;
}

/* Scopes of the text between two statements could give a name another meaning. */
static bool same_scope(const struct ptx_func *f, uint32_t a, uint32_t b)
{
	for (uint32_t i = a < b ? a : b; i < (a < b ? b : a); i++) {
		if (f->stmts[i].kind == PTX_STMT_OPEN || f->stmts[i].kind == PTX_STMT_CLOSE)
			return false;
	}
	return true;
}

static bool has_address(const struct gather *g, struct batch_item *item)
{
	const struct spot *spot = &g->v->spots[item->site];
	const struct ptx_func *f = g->place->func;
	const struct ptx_operand *op = &f->stmts[spot->stmt].insn->operands[spot->access.address];

	if (bound_reg(g->v, op) >= 0 || !same_scope(f, spot->stmt, g->before))
		return false;
	if (!op->name || !op->base_is_reg)
		return true;
	if (spot->stmt >= g->before)
		return repeat(g, item, op->name, spot->stmt);
	for (uint32_t i = spot->stmt; i < g->before; i++) {
		if (writes(f->stmts[i].insn, op->name))
			return false;
	}
	return true;
}

/* -- forming them -- */

/* The sites of a stretch that one program runs at and may send from, in the order of the text. */
struct gather_list {
	uint32_t *sites;
	bool *part; /* it takes part */
	uint32_t n;
};

static bool find_like(struct gather *g)
{
	if (!g->req->fragments[g->fragment]->batch->like || g->n < 2)
		return true;
	if (!g->alike)
		g->alike = alike_new(g->v, g->place);
	for (uint32_t i = 1; g->alike && i < g->n; i++) {
		for (uint32_t k = 0; k < i && !g->items[i].like; k++)
			g->items[i].like = alike_accesses(g->alike, g->from, &g->v->spots[g->items[k].site], &g->v->spots[g->items[i].site]);
	}
	return g->alike;
}

static bool add_batch(struct gather *g)
{
	struct variant *v = g->v;
	struct batch *b = arena_alloc(v->arena, sizeof(*b));

	if (!b || !find_like(g))
		return no_memory(v);
	*b = (struct batch){ .place = g->place, .fragment = g->fragment, .before = g->before, .items = g->items, .n = g->n };
	*(v->last_batch ? &v->last_batch->next : &v->batches) = b;
	v->last_batch = b;
	for (uint32_t i = 0; i < g->n; i++) {
		v->spots[g->items[i].site].batched = g->req->fragments[g->fragment];
		v->spots[g->items[i].site].batch_before = g->before;
	}
	return true;
}

static void list_sites(struct gather *g, struct gather_list *l, uint32_t first, uint32_t end)
{
	const struct ebpf_fragment *f = g->req->fragments[g->fragment];

	for (uint32_t i = first; i < end; i++) {
		const struct spot *spot = &g->v->spots[i];
		if (spot->stmt < g->from || spot->stmt >= g->to || g->v->sites[i].skipped || !fragment_runs_at(g->v, f, i))
			continue;
		enum part part = takes_part(g, i);
		if (part == PART_NONE)
			continue;
		l->sites[l->n] = i;
		l->part[l->n++] = part == PART_BATCH;
	}
}

/* As many of the sites from *at on as there can be together, with nothing of the program's between them. What was sent before is sent before
 * statement `least`. Leaves *at behind them, or behind one that goes alone. */
static bool take_some(struct gather *g, const struct gather_list *l, const uint32_t *parted, uint32_t behind, uint32_t least, uint32_t *at)
{
	uint32_t limit = g->req->fragments[g->fragment]->batch->most, end = *at;

	while (end < l->n && l->part[end] && end - *at < limit)
		end++;
	for (g->n = 0; end > *at && !g->n;) {
		uint32_t most = end < l->n ? g->v->spots[l->sites[end]].stmt : g->to, k = *at;
		g->before = behind > g->from ? behind : g->v->spots[l->sites[*at]].stmt;
		g->before = g->before < least ? least : g->before;
		g->before = g->before > most ? most : g->before;
		g->items = arena_array(g->v->arena, end - *at, sizeof(*g->items));
		if (!g->items)
			return no_memory(g->v);
		for (; k < end; k++) {
			g->items[k - *at].site = l->sites[k];
			if (g->before >= g->place->func->n_stmts || parted[g->before] || !has_address(g, &g->items[k - *at]))
				break;
		}
		if (k == end)
			g->n = end - *at;
		end = k;
	}
	*at += g->n ? g->n : 1;
	return !g->n || add_batch(g);
}

static bool gather(struct gather *g, const uint32_t *parted, uint32_t behind, uint32_t first, uint32_t end)
{
	uint32_t room = end - first + 1, least = g->from;
	struct gather_list l = { arena_array(g->v->arena, room, sizeof(*l.sites)), arena_array(g->v->arena, room, sizeof(*l.part)), 0 };

	if (!l.sites || !l.part)
		return no_memory(g->v);
	list_sites(g, &l, first, end);
	for (uint32_t at = 0; at < l.n;) {
		if (!take_some(g, &l, parted, behind, least, &at))
			return false;
		if (!g->n)
			least = g->v->spots[l.sites[at - 1]].stmt + 1;
	}
	return true;
}

/* What runs in chosen warps beside others, in one version of the function, goes its own way. */
static bool has_batch(const struct ebpf_fragment *f, const struct place *place)
{
	return f->batch && (!f->sampled || place->split);
}

bool form_batches(struct variant *v, const struct instrument_request *req, const struct place *place, const uint32_t *parted,
	uint32_t first, uint32_t end)
{
	struct stretch_span s = { 0 };
	bool any = false, ok = true;
	struct alike *alike = NULL;

	for (uint32_t i = 0; i < req->n_fragments; i++)
		any |= has_batch(req->fragments[i], place);
	while (any && ok && next_stretch(v, place, parted, &s, &ok)) {
		for (uint32_t i = 0; ok && i < req->n_fragments; i++) {
			struct gather g = { .v = v, .req = req, .place = place, .from = s.from, .to = s.to, .fragment = i, .alike = alike };
			if (has_batch(req->fragments[i], place))
				ok = gather(&g, parted, s.behind, first, end);
			alike = g.alike;
		}
	}
	alike_free(alike);
	return ok;
}

void batches_probed(const struct variant *v, const struct place *place, struct products *p)
{
	for (const struct batch *b = v->batches; b; b = b->next) {
		if (b->place == place)
			p->probed[b->before] = true;
	}
}

bool batches_held(struct variant *v, const struct place *place, const struct products *p, bool *some_missing)
{
	for (struct batch *b = v->batches; b; b = b->next) {
		if (b->place != place)
			continue;
		if (!products_held(v, place, p, b->before, &b->held))
			return false;
		*some_missing |= b->held.some_missing;
	}
	return true;
}

/* -- where the program is called -- */

uint64_t batched_insns(const struct variant *v, const struct instrument_request *req, const struct ebpf_fragment *f)
{
	const struct ebpf_batch *text = f->batch;
	uint64_t n = 0;

	for (const struct batch *b = v->batches; b; b = b->next)
		if (req->fragments[b->fragment] == f)
			n += count_lines(text->begin) + (uint64_t)b->n * count_lines(text->item) + count_lines(text->end) + count_lines(text->apart);
	return n;
}

void drop_batches(struct variant *v, const struct instrument_request *req, const struct ebpf_fragment *f, uint32_t least)
{
	struct batch **at = &v->batches;

	v->last_batch = NULL;
	for (struct batch *b; (b = *at);) {
		if (req->fragments[b->fragment] == f && b->n < least) {
			for (uint32_t i = 0; i < b->n; i++)
				v->spots[b->items[i].site].batched = NULL;
			*at = b->next;
			continue;
		}
		v->last_batch = b;
		at = &b->next;
	}
}

/* -- their text -- */

/* The register that stands for one that the first `n` of the slice write; those behind a reader do not matter to it. */
static void put_reg(const struct batch *b, const struct batch_item *item, uint32_t n, const char *name, struct buf *out)
{
	for (uint32_t i = n; i; i--) {
		if (writes(b->place->func->stmts[item->slice[i - 1]].insn, name)) {
			buf_printf(out, "%%egpu_a%u", i - 1);
			return;
		}
	}
	buf_puts(out, name);
}

static void put_slice(const struct batch *b, const struct variant *v, const struct batch_item *item, struct buf *out)
{
	for (uint32_t i = 0; i < item->n_slice; i++) {
		const struct ptx_insn *insn = b->place->func->stmts[item->slice[i]].insn;
		buf_printf(out, "\t.reg .b%u %%egpu_a%u;\n", insn->operands[0].reg->type.bits, i);
	}
	for (uint32_t i = 0; i < item->n_slice; i++) {
		const struct ptx_insn *insn = b->place->func->stmts[item->slice[i]].insn;
		buf_printf(out, "\t%s ", insn->opcode);
		for (uint32_t k = 0; k < insn->n_operands; k++) {
			const struct ptx_operand *op = &insn->operands[k];
			buf_puts(out, k ? ", " : "");
			if (op->kind == PTX_OPERAND_REG)
				put_reg(b, item, k ? i : i + 1, op->name, out);
			else
				buf_add(out, v->m->text + op->span.begin, op->span.end - op->span.begin);
		}
		buf_puts(out, ";\n");
	}
}

static struct inputs inputs_of(const struct variant *v, const struct instrument_request *req, const struct batch *b, uint32_t k)
{
	return (struct inputs){ .v = v,
		.fields = req->fragments[b->fragment]->fields,
		.site = req->first_site + b->items[k].site,
		.kernel_id = req->kernel_id,
		.spot = &v->spots[b->items[k].site],
		.ordinal = b->items[k].site };
}

static const struct ptx_operand *address_of(const struct variant *v, const struct batch *b, uint32_t k)
{
	const struct spot *spot = &v->spots[b->items[k].site];

	return &b->place->func->stmts[spot->stmt].insn->operands[spot->access.address];
}

/* One site's inputs. */
static void put_inputs(const struct variant *v, const struct batch *b, uint32_t k, struct inputs in, struct buf *out)
{
	const struct batch_item *item = &b->items[k];
	const struct ptx_operand *op = address_of(v, b, k);
	struct buf reg = { 0 };

	put_slice(b, v, item, out);
	if (op->name && op->base_is_reg && item->n_slice) {
		put_reg(b, item, item->n_slice, op->name, &reg);
		in.address_reg = reg.data;
	}
	emit_inputs(&in, out);
	out->failed |= reg.failed;
	buf_free(&reg);
}

static void put_items(const struct variant *v, const struct instrument_request *req, const struct batch *b, struct buf *out)
{
	const struct ebpf_batch *texts = req->fragments[b->fragment]->batch;

	for (uint32_t k = 0; k < b->n; k++) {
		const char *text = b->items[k].like ? texts->like : texts->item;
		struct inputs in = inputs_of(v, req, b, k);
		buf_printf(out, "{\n\t.reg .b32 %%egpu_item;\n\tmov.b32 %%egpu_item, %u;\n", k);
		emit_declarations(&in, out);
		put_inputs(v, b, k, in, out);
		ebpf_fragment_text(text, v->target.version, v->target.sm, out);
		buf_puts(out, "}\n");
	}
}

/* The address registers of all sites into memory, of whoever goes apart: around the loop they would be held in registers that everybody else then
 * lacks. ptxas would see through an array whose index it knows. */
static void keep_addresses(const struct variant *v, const struct batch *b, struct buf *out)
{
	buf_printf(out, "\t.local .align 8 .b8 $egpu_addresses[%u];\n\t.reg .b32 %%egpu_address_at;\n\t.reg .b64 %%egpu_address_was;\n", 8 * b->n);
	for (uint32_t k = 0; k < b->n; k++) {
		const struct batch_item *item = &b->items[k];
		const struct ptx_operand *op = address_of(v, b, k);
		if (!op->name || !op->base_is_reg)
			continue;
		buf_puts(out, "{\n");
		put_slice(b, v, item, out);
		buf_printf(out, "\tst.local.b%u [$egpu_addresses+%u], ", op->reg->type.bits, 8 * k);
		put_reg(b, item, item->n_slice, op->name, out);
		buf_puts(out, ";\n}\n");
	}
}

static void put_kept(const struct variant *v, const struct instrument_request *req, const struct batch *b, uint32_t k, struct buf *out)
{
	const struct ptx_operand *op = address_of(v, b, k);
	struct inputs in = inputs_of(v, req, b, k);

	if (op->name && op->base_is_reg && op->reg->type.bits == 32) {
		buf_puts(out, "\t.reg .b32 %egpu_address_low;\n\tcvt.u32.u64 %egpu_address_low, %egpu_address_was;\n");
		in.address_reg = "%egpu_address_low";
	} else if (op->name && op->base_is_reg) {
		in.address_reg = "%egpu_address_was";
	}
	emit_inputs(&in, out);
}

/* What the program does for one site after the other; a loop, so that it is there once. */
static void put_apart(const struct variant *v, const struct instrument_request *req, const struct batch *b, struct buf *out)
{
	struct inputs in = inputs_of(v, req, b, 0);

	buf_puts(out, "{\n\t.reg .b32 %egpu_turn;\n\t.reg .pred %egpu_other;\n\tmov.b32 %egpu_turn, 0;\n");
	keep_addresses(v, b, out);
	emit_declarations(&in, out);
	buf_puts(out, "$egpu_l_again:\n\tmov.u32 %egpu_address_at, $egpu_addresses;\n"
		      "\tmad.lo.u32 %egpu_address_at, %egpu_turn, 8, %egpu_address_at;\n\tld.local.b64 %egpu_address_was, [%egpu_address_at];\n");
	for (uint32_t k = 0; k < b->n; k++) {
		buf_printf(out, "{\n\tsetp.ne.u32 %%egpu_other, %%egpu_turn, %u;\n\t@%%egpu_other bra $egpu_next%u;\n", k, k);
		put_kept(v, req, b, k, out);
		buf_printf(out, "$egpu_next%u:\n}\n", k);
	}
	if (is_called(v, req->fragments[b->fragment]))
		emit_call(v, req->fragments[b->fragment], out);
	else
		ebpf_fragment_text(req->fragments[b->fragment]->batch->apart, v->target.version, v->target.sm, out);
	buf_printf(out, "\tadd.u32 %%egpu_turn, %%egpu_turn, 1;\n\tsetp.ne.u32 %%egpu_other, %%egpu_turn, %u;\n"
			"\t@%%egpu_other bra $egpu_l_again;\n}\n$egpu_together:\n", b->n);
}

static char *batch_text(const struct variant *v, const struct instrument_request *req, const struct batch *b)
{
	const struct ebpf_fragment *f = req->fragments[b->fragment];
	uint32_t first = b->items[0].site;
	struct buf out = { 0 };
	char *text = NULL;

	buf_printf(&out, "{ // egpu site %u\n", req->first_site + first);
	buf_puts(&out, "\t.reg .pred %egpu_xp1;\n\t.reg .b32 %egpu_items, %egpu_xt1;\n");
	buf_printf(&out, "\tmov.b32 %%egpu_items, %u;\n", b->n);
	emit_held(&b->held, first, &out);
	buf_puts(&out, "{\n");
	ebpf_fragment_text(f->batch->begin, v->target.version, v->target.sm, &out);
	put_items(v, req, b, &out);
	ebpf_fragment_text(f->batch->end, v->target.version, v->target.sm, &out);
	if (f->batch->apart)
		put_apart(v, req, b, &out);
	else
		buf_puts(&out, "$egpu_together:\n");
	buf_puts(&out, "}\n");
	if (b->held.n)
		buf_printf(&out, "$egpu_end%u:\n", first);
	buf_puts(&out, "}\n\t");
	if (!out.failed)
		text = arena_strdup(v->arena, out.data);
	buf_free(&out);
	return text;
}

bool splice_batches(struct variant *v, const struct instrument_request *req)
{
	for (const struct batch *b = v->batches; b; b = b->next) {
		char *text = batch_text(v, req, b);
		if (!text)
			return no_memory(v);
		ptx_edit_insert(&v->edits, insert_point(v, b->place->func, b->before), text);
	}
	return true;
}
