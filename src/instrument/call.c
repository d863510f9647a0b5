/* call.c - a large program at many sites: there once, as a function of the variant that the sites call.
 *
 * Requires batches and what stands behind loads or in registers (spots); leaves v->called, by fragment. Inline text is what runs fastest, and what
 * is compiled slowest: ptxas takes the square of it, about, half a minute for a hash at 174 sites. What stands at a site that calls is
 *
 *	inputs
 *	{ arguments; call __egpu_program<i>, (...); }
 *
 * and the function, behind those of fragments,
 *
 *	.func __egpu_program<i>(...)
 *	{
 *		declarations; what a thread knows of itself anywhere; arguments
 *		{ fragment }
 *		ret;
 *	}
 *
 * Where a fragment vanishes because of what the site is (fragment.h: when), there is no call: splice.c leaves it out. Inline stay fragments that read what other lanes
 * hand over, or parameters; and all in kernels that several warps run as one, which a call would serialise.
 */
#include <string.h>

#include "instrument/variant.h"

/* What programs may say more than once in a kernel, in instructions: ptxas takes 3 s for about so many, four times that for twice as many (docs/performance.md).
 * A build with -DMANY_INSNS=0 calls wherever it can: how the whole suite is run with calls. */
#ifndef MANY_INSNS
#define MANY_INSNS 24000
#endif
/* Called is what is longer than what stands at a site instead; and so many records of sites stay together there. */
enum { LEAST_INSNS = 100, LEAST_TOGETHER = 4, MAX_ARGUMENTS = 20 };

uint32_t count_lines(const char *text)
{
	uint32_t n = 0;

	for (const char *p = text; p && (p = strchr(p, '\n')); p++)
		n++;
	return n;
}

bool is_called(const struct variant *v, const struct ebpf_fragment *f)
{
	for (uint32_t i = 0; i < v->n_called; i++)
		if (v->called[i] == f)
			return true;
	return false;
}

/* Groups of sites (fan.c) have another text, which reads all. */
uint64_t call_fields(const struct ebpf_fragment *f)
{
	return f->repeat ? f->fields : f->fields & ~fields_anywhere();
}

bool acts_at(const struct variant *v, const struct ebpf_fragment *f, uint32_t site)
{
	uint32_t value;

	for (uint32_t k = 0; k < f->n_when; k++)
		if (known_field(v, site, v->first_site + site, f->when[k].field, &value) && !when_holds(&f->when[k], value))
			return false;
	return true;
}

static bool may_call(const struct ebpf_fragment *f)
{
	return count_lines(f->body) >= LEAST_INSNS && !f->gathered && !f->n_params && !is_guard(f) &&
	       (uint32_t)__builtin_popcountll(f->fields & ~fields_anywhere()) + f->slot + f->sampled <= MAX_ARGUMENTS;
}

/* What it says more than once. */
static uint64_t repeated_insns(struct variant *v, const struct instrument_request *req, const struct ebpf_fragment *f)
{
	uint64_t sites = 0;

	for (uint32_t i = 0; i < v->n_sites; i++) {
		const struct spot *s = &v->spots[i];
		bool grouped = f->repeat && (s->moved || s->counter);
		if (!grouped && !v->sites[i].skipped && fragment_runs_at(v, f, i) && acts_at(v, f, i))
			sites += 1 + s->n_off;
	}
	return (sites ? sites - 1 : 0) * count_lines(f->body) + batched_insns(v, req, f);
}

static void call_it(struct variant *v, const struct instrument_request *req, const struct ebpf_fragment *f)
{
	v->called[v->n_called++] = f;
	drop_batches(v, req, f, LEAST_TOGETHER);
	if (batched_insns(v, req, f) > MANY_INSNS)
		drop_batches(v, req, f, UINT32_MAX);
}

static const struct ebpf_fragment *longest(const struct instrument_request *req, const uint64_t *insns)
{
	const struct ebpf_fragment *f = NULL;
	uint64_t most = 0;

	for (uint32_t i = 0; i < req->n_fragments; i++) {
		if (insns[i] <= most || !may_call(req->fragments[i]))
			continue;
		most = insns[i];
		f = req->fragments[i];
	}
	return f;
}

/* The longest first, until what is left is short enough. */
bool choose_calls(struct variant *v, const struct instrument_request *req)
{
	uint64_t *insns = arena_array(v->arena, req->n_fragments + 1, sizeof(*insns)), all = 0;
	const struct ebpf_fragment *f;

	v->called = arena_array(v->arena, req->n_fragments + 1, sizeof(*v->called));
	if (!v->called || !insns)
		return no_memory(v);
	for (uint32_t i = 0; i < req->n_fragments; i++)
		all += insns[i] = repeated_insns(v, req, req->fragments[i]);
	while (all > MANY_INSNS && !joins_warps(v) && (f = longest(req, insns))) {
		call_it(v, req, f);
		for (uint32_t i = 0; i < req->n_fragments; i++) {
			if (req->fragments[i] != f)
				continue;
			all -= insns[i];
			insns[i] = 0;
		}
	}
	return true;
}

/* A field's register, or one that the function it is in has. */
struct argument {
	const char *prefix, *name;
	uint32_t bits;
};

static uint32_t arguments(const struct ebpf_fragment *f, struct argument *out)
{
	uint64_t fields = f->fields & ~fields_anywhere();
	uint32_t n = 0;

	for (int i = 0; i < EBPF_FIELD_COUNT; i++)
		if (fields >> i & 1)
			out[n++] = (struct argument){ "%egpu_", ebpf_fields[i].name, ebpf_fields[i].bytes * 8u };
	if (f->slot)
		out[n++] = (struct argument){ "", SLOT_REG, 32 };
	if (f->sampled)
		out[n++] = (struct argument){ "", WEIGHT_REG, 32 };
	return n;
}

static uint32_t number_of(const struct variant *v, const struct ebpf_fragment *f)
{
	uint32_t i = 0;

	while (v->called[i] != f)
		i++;
	return i;
}

void emit_call(const struct variant *v, const struct ebpf_fragment *f, struct buf *b)
{
	struct argument args[MAX_ARGUMENTS];
	uint32_t n = arguments(f, args);

	buf_puts(b, "{\n");
	for (uint32_t k = 0; k < n; k++)
		buf_printf(b, "\t.param .b%u egpu_arg%u;\n\tst.param.b%u [egpu_arg%u], %s%s;\n", args[k].bits, k, args[k].bits, k, args[k].prefix, args[k].name);
	buf_printf(b, "\tcall __egpu_program%u", number_of(v, f));
	for (uint32_t k = 0; k < n; k++)
		buf_printf(b, "%segpu_arg%u", k ? ", " : ", (", k);
	buf_printf(b, "%s;\n}\n", n ? ")" : "");
}

static void put_program(const struct variant *v, const struct instrument_request *req, uint32_t i, struct buf *b)
{
	const struct ebpf_fragment *f = v->called[i];
	const struct spot spot = { .access = { .space = PTX_SPACE_GLOBAL, .size = -1 } };
	struct inputs in = { .v = v, .fields = f->fields, .kernel_id = req->kernel_id, .spot = &spot };
	struct argument args[MAX_ARGUMENTS];
	uint32_t n = arguments(f, args);

	buf_printf(b, ".func __egpu_program%u", i);
	for (uint32_t k = 0; k < n; k++)
		buf_printf(b, "%s.param .b%u a%u", k ? ", " : "(", args[k].bits, k);
	buf_printf(b, "%s\n{\n", n ? ")" : "");
	emit_declarations(&in, b);
	for (uint32_t k = 0; k < n; k++) {
		if (!*args[k].prefix)
			buf_printf(b, "\t.reg .b%u %s;\n", args[k].bits, args[k].name);
		buf_printf(b, "\tld.param.b%u %s%s, [a%u];\n", args[k].bits, args[k].prefix, args[k].name, k);
	}
	in.fields &= fields_anywhere();
	emit_everywhere(&in, b);
	ebpf_fragment_text(f->body, v->target.version, v->target.sm, b);
	buf_puts(b, "\n\tret;\n}\n\n");
}

void emit_programs(const struct variant *v, const struct instrument_request *req, struct buf *b)
{
	for (uint32_t i = 0; i < v->n_called; i++)
		put_program(v, req, i, b);
}
