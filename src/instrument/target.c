/* target.c - what the module's .version and .target allow. Neither is ever raised: a higher
 * .version changes what other instructions mean (plain vote ends at 6.4 on sm_70). */
#include <errno.h>
#include <string.h>

#include "instrument/variant.h"

static const struct feature {
	uint16_t version, sm; /* both at least */
	size_t flag;          /* offset in struct target */
} features[] = {
	{ 602, 30, offsetof(struct target, activemask) },
	{ 600, 70, offsetof(struct target, match) },
	{ 708, 90, offsetof(struct target, clusters) },
	{ 708, 90, offsetof(struct target, shared_cluster) },
};

bool target_init(struct variant *v)
{
	struct target *t = &v->target;
	const struct ptx_module *m = v->m;

	t->version = m->version_major * 100 + m->version_minor;
	t->sm = m->sm;
	if (t->version < 600)
		return variant_refuse(v, 0, "its PTX is version %u.%u; probes need 6.0 or newer",
			m->version_major, m->version_minor);
	if (t->sm < 52)
		return variant_refuse(
			v, 0, "its PTX targets %s; probes need sm_52 or newer", m->target);
	if (m->address_size != 64)
		return variant_refuse(v, 0, "its PTX has 32-bit addresses");
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++)
		*(bool *)((char *)t + features[i].flag) =
			t->version >= features[i].version && t->sm >= features[i].sm;
	return true;
}

/* The lanes that execute this together. Before PTX 6.2 a vote over them says the same; plain vote
 * is only gone from 6.4 on. */
void emit_active_mask(const struct target *t, struct buf *b, const char *reg)
{
	if (t->here)
		buf_printf(b, "\tmov.b32 %s, %s;\n", reg, t->here);
	else if (t->activemask)
		buf_printf(b, "\tactivemask.b32 %s;\n", reg);
	else
		buf_printf(b,
			"\tsetp.eq.u32 %%egpu_xp1, 0, 0;\n\tvote.ballot.b32 %s, %%egpu_xp1;\n",
			reg);
}

/* One match, then the lowest lane of each group votes. */
static void count_by_match(struct buf *b, const char *key, const char *out)
{
	buf_printf(b, "\tmatch.any.sync.b64 %%egpu_xt1, %s, %%egpu_xm;\n", key);
	buf_puts(b, "\tand.b32 %egpu_xt1, %egpu_xt1, %egpu_xt0;\n"
		    "\tsetp.eq.u32 %egpu_xp1, %egpu_xt1, 0;\n"
		    "\tvote.sync.ballot.b32 %egpu_xt1, %egpu_xp1, %egpu_xm;\n");
	buf_printf(b, "\tpopc.b32 %s, %%egpu_xt1;\n", out);
}

/* sm_52-62: the lowest lane left announces its key; those who share it drop out. */
static void count_by_shuffle(struct buf *b, const char *key, const char *out, const char *label)
{
	buf_printf(b, "\tmov.b64 {%%egpu_xt2, %%egpu_xt3}, %s;\n", key);
	buf_printf(b, "\tmov.b32 %s, 0;\n\tmov.b32 %%egpu_xt4, %%egpu_xm;\n", out);
	buf_printf(b, "%s:\n", label);
	buf_puts(b, "\tbrev.b32 %egpu_xt1, %egpu_xt4;\n"
		    "\tclz.b32 %egpu_xt1, %egpu_xt1;\n"
		    "\tshfl.sync.idx.b32 %egpu_xt5, %egpu_xt2, %egpu_xt1, 31, %egpu_xm;\n"
		    "\tshfl.sync.idx.b32 %egpu_xt6, %egpu_xt3, %egpu_xt1, 31, %egpu_xm;\n"
		    "\tsetp.eq.u32 %egpu_xp1, %egpu_xt5, %egpu_xt2;\n"
		    "\tsetp.eq.and.u32 %egpu_xp1, %egpu_xt6, %egpu_xt3, %egpu_xp1;\n"
		    "\tvote.sync.ballot.b32 %egpu_xt1, %egpu_xp1, %egpu_xm;\n"
		    "\tnot.b32 %egpu_xt1, %egpu_xt1;\n"
		    "\tand.b32 %egpu_xt4, %egpu_xt4, %egpu_xt1;\n");
	buf_printf(b, "\tadd.u32 %s, %s, 1;\n", out, out);
	buf_puts(b, "\tsetp.ne.u32 %egpu_xp1, %egpu_xt4, 0;\n");
	buf_printf(b, "\t@%%egpu_xp1 bra %s;\n", label);
}

void emit_count_distinct(
	const struct target *t, struct buf *b, const char *key, const char *out, const char *label)
{
	if (t->match)
		count_by_match(b, key, out);
	else
		count_by_shuffle(b, key, out, label);
}
