/* native.c - programs as a function that guards call in place of the interpreter (live/live.h).
 *
 * The function stands alone: what it uses is its arguments, special registers, and numbers. What a variant reads from __egpu_table is known
 * when it is compiled, and becomes a number in its text. So its machine code runs wherever it lies. Each program is a scope of its own: the
 * fields, the elected lane among those that came together, the body.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "egpu/probe.bpf.h"
#include "instrument/variant.h"
#include "live/live.h"

#define BIT(f) (UINT64_C(1) << EBPF_FIELD_##f)
#define COVERAGE (BIT(DISTINCT_BYTES) | BIT(SECTORS))

/* What the guards pass (live/interp.c). */
static const char access_params[] =
	"(.param .b64 l, .param .b32 p, .param .b32 site, .param .b32 kernel, .param .b64 address, .param .b32 bytes, .param .b32 space, "
	".param .b32 op, .param .b32 value_bytes, .param .b64 value0, .param .b64 value1, .param .b64 value2, .param .b64 value3)";
static const char place_params[] = "(.param .b64 l, .param .b64 where, .param .b64 block)";

/* Fields that are parameters, or halves of one. */
static const struct passed {
	enum ebpf_field field;
	const char *access, *place; /* NULL: not there */
} passed[] = {
	{ EBPF_FIELD_SITE, "site", "where" },
	{ EBPF_FIELD_KERNEL, "kernel", "where+4" },
	{ EBPF_FIELD_ADDRESS, "address", NULL },
	{ EBPF_FIELD_BYTES, "bytes", NULL },
	{ EBPF_FIELD_SPACE, "space", NULL },
	{ EBPF_FIELD_OP, "op", NULL },
	{ EBPF_FIELD_VALUE_BYTES, "value_bytes", NULL },
	{ EBPF_FIELD_VALUE0, "value0", NULL },
	{ EBPF_FIELD_VALUE1, "value1", NULL },
	{ EBPF_FIELD_VALUE2, "value2", NULL },
	{ EBPF_FIELD_VALUE3, "value3", NULL },
	{ EBPF_FIELD_BLOCK_INDEX, NULL, "block" },
	{ EBPF_FIELD_BLOCK_INSNS, NULL, "block+4" },
};

/* Fields that are the same everywhere, as in the interpreter. */
static const struct {
	enum ebpf_field field;
	uint32_t value;
} fixed[] = { { EBPF_FIELD_LAUNCH, 0 }, { EBPF_FIELD_LOOP_HEAD, 1 } };

/* The newest PTX that changes a body, and no newer than drivers of the device take. */
static struct target target_of(uint32_t cc)
{
	struct target t = { .version = 603, .sm = cc < 75 ? 70 : 75, .activemask = true, .match = true, .here = "%egpu_here" };

	if (cc >= 90)
		t.version = 708, t.sm = 90;
	else if (cc >= 80)
		t.version = 700, t.sm = 80;
	return t;
}

/* -- what cannot be ------------------------------------------------------------- */

static int check(const struct ebpf_fragment *f, enum live_point point, struct diag *d)
{
	uint64_t known = 0;

	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++)
		if (point == LIVE_MEM ? passed[i].access : passed[i].place)
			known |= UINT64_C(1) << passed[i].field;
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		known |= UINT64_C(1) << fixed[i].field;
	for (int k = 0; k <= EBPF_FIELD_ACTIVE_MASK; k++)
		known |= UINT64_C(1) << k;
	known |= BIT(MASK) | BIT(LANES) | (point == LIVE_MEM ? BIT(MEM_MASK) | BIT(MEM_LANES) | COVERAGE : 0);
	if (f->fields & ~known)
		return diag_set(d, EOPNOTSUPP, "it reads %s", ebpf_fields[__builtin_ctzll(f->fields & ~known)].name);
	if (f->sampled)
		return diag_set(d, EOPNOTSUPP, "it runs in chosen warps");
	if (f->gathered)
		return diag_set(d, EOPNOTSUPP, "it reads what other lanes have");
	if (f->n_params)
		return diag_set(d, EOPNOTSUPP, "it reads parameters of the kernel");
	return 0;
}

/* -- fields ----------------------------------------------------------------------- */

static void put_passed(struct buf *b, uint64_t fields, enum live_point point)
{
	for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
		const struct passed *p = &passed[i];
		const char *name = point == LIVE_MEM ? p->access : p->place;
		if (fields >> p->field & 1)
			buf_printf(b, "\tld.param.b%u %%egpu_%s, [%s];\n", ebpf_fields[p->field].bytes * 8, ebpf_fields[p->field].name, name);
	}
	/* The kernel's number has the point above it there. */
	if ((fields & BIT(KERNEL)) && point != LIVE_MEM)
		buf_puts(b, "\tand.b32 %egpu_kernel, %egpu_kernel, 0xffff;\n");
	for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
		if (fields >> fixed[i].field & 1)
			buf_printf(b, "\tmov.b%u %%egpu_%s, %u;\n", ebpf_fields[fixed[i].field].bytes * 8, ebpf_fields[fixed[i].field].name,
				fixed[i].value);
}

/* Accesses are aligned to their size, which is a power of two. */
static void put_coverage(struct buf *b, const struct inputs *in)
{
	char label[32];

	if (in->fields & BIT(DISTINCT_BYTES)) {
		snprintf(label, sizeof(label), "$egpu_d%u", in->ordinal);
		emit_count_distinct(&in->v->target, b, "%egpu_address", "%egpu_distinct_bytes", label);
		buf_puts(b, "\tmul.lo.u32 %egpu_distinct_bytes, %egpu_distinct_bytes, %egpu_bytes;\n");
	}
	if (!(in->fields & BIT(SECTORS)))
		return;
	snprintf(label, sizeof(label), "$egpu_c%u", in->ordinal);
	buf_puts(b, "\tmax.u32 %egpu_xt1, %egpu_bytes, 32;\n\tclz.b32 %egpu_xt1, %egpu_xt1;\n\tsub.u32 %egpu_xt1, 31, %egpu_xt1;\n"
		    "\tshr.u64 %egpu_xu0, %egpu_address, %egpu_xt1;\n");
	emit_count_distinct(&in->v->target, b, "%egpu_xu0", "%egpu_sectors", label);
	buf_puts(b, "\tmax.u32 %egpu_xt1, %egpu_bytes, 32;\n\tshr.u32 %egpu_xt1, %egpu_xt1, 5;\n"
		    "\tmul.lo.u32 %egpu_sectors, %egpu_sectors, %egpu_xt1;\n");
}

/* -- the body ---------------------------------------------------------------------- */

/* "ld.const.u64 %r, [__egpu_table+N];" becomes "mov.u64 %r, number;". */
static int put_line(struct buf *b, const char *line, size_t n, const uint64_t *table, struct diag *d)
{
	static const char name[] = "[__egpu_table", load[] = "ld.const.";
	const char *use = memmem(line, n, name, sizeof(name) - 1), *from = use ? memmem(line, (size_t)(use - line), load, sizeof(load) - 1) : NULL;
	unsigned long at = 0;
	char *end;

	if (!use) {
		buf_add(b, line, n);
		return 0;
	}
	const char *offset = use + sizeof(name) - 1;
	if (*offset == '+')
		at = strtoul(offset + 1, &end, 10);
	else
		end = (char *)offset;
	bool wide = from && !strncmp(from + sizeof(load) - 1, "u64", 3);
	if (!from || *end != ']' || at % (wide ? 8 : 4) || at / 8 >= EBPF_TABLE_SYMBOLS)
		return diag_set(d, EOPNOTSUPP, "it reads the table in a way that is not known");
	uint64_t value = wide ? table[at / 8] : (uint32_t)(table[at / 8] >> (at % 8 * 8));
	buf_add(b, line, (size_t)(from - line));
	buf_puts(b, "mov.");
	buf_add(b, from + sizeof(load) - 1, (size_t)(use - from) - (sizeof(load) - 1));
	buf_printf(b, "0x%llx", (unsigned long long)value);
	buf_add(b, end + 1, (size_t)(line + n - (end + 1)));
	return 0;
}

static int put_text(struct buf *b, const char *text, const struct target *t, const uint64_t *table, struct diag *d)
{
	struct buf own = { 0 };
	int err = 0;

	ebpf_fragment_text(text, t->version, t->sm, &own);
	b->failed |= own.failed;
	for (const char *line = own.data; line && *line && !err;) {
		const char *end = strchr(line, '\n');
		size_t n = end ? (size_t)(end - line) + 1 : strlen(line);
		err = put_line(b, line, n, table, d);
		line += n;
	}
	buf_free(&own);
	return err;
}

static int put_program(struct buf *b, const struct variant *v, const struct native_request *r, uint32_t i, struct diag *d)
{
	const struct ebpf_fragment *f = r->fragments[i];
	/* An access of a size that is known only when it runs. */
	struct spot spot = { .access = { .space = PTX_SPACE_GLOBAL, .size = r->point == LIVE_MEM ? 0 : -1 } };
	struct inputs in = { .v = v, .fields = f->fields, .warp = f->warp, .spot = &spot, .ordinal = i }, everywhere = in;
	uint64_t extra = f->fields & COVERAGE ? BIT(ADDRESS) | BIT(BYTES) : 0, ours = 0;
	char skip[24];

	snprintf(skip, sizeof(skip), "$egpu_n%u", i);
	buf_puts(b, "\t{\n");
	emit_declarations(&in, b);
	if (r->point == LIVE_MEM && r->ops[i] != ~0u)
		buf_printf(b, "\tld.param.b32 %%egpu_xt1, [op];\n\tmov.b32 %%egpu_xt2, %u;\n\tshr.u32 %%egpu_xt2, %%egpu_xt2, %%egpu_xt1;\n"
			      "\tand.b32 %%egpu_xt2, %%egpu_xt2, 1;\n\tsetp.eq.u32 %%egpu_xp1, %%egpu_xt2, 0;\n\t@%%egpu_xp1 bra %s;\n",
			r->ops[i] & 15, skip);
	for (size_t k = 0; k < sizeof(passed) / sizeof(passed[0]); k++)
		ours |= UINT64_C(1) << passed[k].field;
	everywhere.fields &= ~(ours | BIT(LAUNCH) | COVERAGE);
	/* The count of what is different needs the lanes that are here, and those below. */
	everywhere.warp = f->warp || f->fields & COVERAGE;
	emit_everywhere(&everywhere, b);
	put_passed(b, f->fields | extra, r->point);
	put_coverage(b, &in);
	if (f->slot)
		buf_printf(b, "\t.reg .b32 %s;\n\tmov.u32 %s, %%smid;\n\tmin.u32 %s, %s, %u;\n", SLOT_REG, SLOT_REG, SLOT_REG, SLOT_REG,
			(uint32_t)r->table[EBPF_TABLE_SMS] - 1);
	if (f->warp)
		buf_printf(b, "\t@%%egpu_xe bra %s;\n", skip);
	int err = put_text(b, f->body, &v->target, r->table, d);
	buf_printf(b, "\n%s:\n\t}\n", skip);
	return err;
}

/* A kernel that nobody launches. The linker leaves out what no kernel calls: the function where only its address is taken is kept, and what it
 * calls is left out, so that it would call address 0. */
static void put_keeper(struct buf *b, enum live_point point)
{
	static const uint8_t access[] = { 64, 32, 32, 32, 64, 32, 32, 32, 32, 64, 64, 64, 64 }, place[] = { 64, 64, 64 };
	const uint8_t *bits = point == LIVE_MEM ? access : place;
	uint32_t n = point == LIVE_MEM ? sizeof(access) : sizeof(place);

	buf_puts(b, ".visible .entry " NATIVE_NAME "_keep(.param .u64 at)\n{\n\t.reg .b64 %at, %f;\n\tld.param.u64 %at, [at];\n"
		    "\tmov.u64 %f, " NATIVE_NAME ";\n\tst.global.u64 [%at], %f;\n\t{\n");
	for (uint32_t k = 0; k < n; k++)
		buf_printf(b, "\t.param .b%u a%u;\n\tst.param.b%u [a%u], 0;\n", bits[k], k, bits[k], k);
	buf_puts(b, "\tcall " NATIVE_NAME ", (");
	for (uint32_t k = 0; k < n; k++)
		buf_printf(b, "%sa%u", k ? ", " : "", k);
	buf_puts(b, ");\n\t}\n\tret;\n}\n");
}

static bool seen_before(const struct native_request *r, uint32_t i, const char *name)
{
	for (uint32_t k = 0; k < i; k++)
		for (uint32_t n = 0; n < r->fragments[k]->n_funcs; n++)
			if (!strcmp(r->fragments[k]->funcs[n].name, name))
				return true;
	return false;
}

int instrument_native(const struct native_request *r, struct buf *out, struct diag *d)
{
	struct variant v = { .target = target_of(r->cc) };
	int err = 0;

	buf_printf(out, ".version %u.%u\n.target sm_%u\n.address_size 64\n", v.target.version / 100, v.target.version % 100, v.target.sm);
	for (uint32_t i = 0; i < r->n && !err; i++) {
		const struct ebpf_fragment *f = r->fragments[i];
		err = check(f, r->point, d);
		for (uint32_t k = 0; k < f->n_funcs && !err; k++)
			if (!seen_before(r, i, f->funcs[k].name))
				err = put_text(out, f->funcs[k].text, &v.target, r->table, d);
		buf_puts(out, "\n");
	}
	buf_printf(out, ".visible .func " NATIVE_NAME "%s\n{\n", r->point == LIVE_MEM ? access_params : place_params);
	/* Once, since lanes part in the first program. */
	buf_puts(out, "\t.reg .b32 %egpu_here;\n\tactivemask.b32 %egpu_here;\n");
	for (uint32_t i = 0; i < r->n && !err; i++)
		err = put_program(out, &v, r, i, d);
	buf_puts(out, "\tret;\n}\n"); /* the lanes meet behind it (live/call.c) */
	put_keeper(out, r->point);
	return !err && out->failed ? diag_set(d, ENOMEM, "out of memory") : err;
}
